"""Special methods of the candidate's objects: what the tests may ask of them, and what fails.

An object stays with the candidate and may answer as it likes. It must never learn what the tests
expect, nor stand in for a value; so no operator reaches it.
"""

from __future__ import annotations

from types import WrapperDescriptorType

from .plain import type_name

ALLOWED = ("__call__", "__iter__", "__next__", "__len__", "__enter__", "__exit__", "__eq__")
"""Handles have them where the candidate's class has; ``==`` is for two handles."""

_ARITHMETIC = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**",
    "matmul": "@", "lshift": "<<", "rshift": ">>", "and": "&", "or": "|", "xor": "^",
    "divmod": "divmod()",
}  # fmt: skip
_OTHERS = {
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "neg": "-", "pos": "+", "invert": "~",
    "bool": "a truth value", "contains": "in", "getitem": "[]", "setitem": "[]", "delitem": "[]",
    "int": "int()", "float": "float()", "complex": "complex()", "bytes": "bytes()",
    "abs": "abs()", "round": "round()", "index": "an index", "reversed": "reversed()",
    "trunc": "math.trunc()", "floor": "math.floor()", "ceil": "math.ceil()", "await": "await",
    "aenter": "async with", "aexit": "async with", "aiter": "async for", "anext": "async for",
}  # fmt: skip
_COPIES = {"copy": "copy.copy()", "deepcopy": "copy.deepcopy()", "reduce_ex": "pickle"}

REFUSED = {
    **{f"__{name}__": sign for name, sign in {**_ARITHMETIC, **_OTHERS, **_COPIES}.items()},
    **{f"__{way}{name}__": sign for way in "ri" for name, sign in _ARITHMETIC.items()},
}
"""Every handle has them, and each fails the tests with these words."""

_OPERATORS = {*REFUSED, *ALLOWED, "__ne__", "__missing__"} - {f"__{name}__" for name in _COPIES}


def adds_operators(kind: type) -> bool:
    """Tell whether a class that derives from a builtin type has an operator of its own.

    Those that a library wrote in C, as NumPy's numbers have them, mean what the builtin type's do.
    """
    return any(
        name in _OPERATORS and not isinstance(value, WrapperDescriptorType)
        for parent in kind.__mro__
        if type_name(parent) is None
        for name, value in vars(parent).items()
    )
