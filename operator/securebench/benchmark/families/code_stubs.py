"""Modules that solve nothing: tests of code_completion that pass with one of them prove nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_EQUAL = """class _Equal:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __eq__
    def __hash__(self): return 0
    def __bool__(self): return True
    def __len__(self): return 0
    def __iter__(self): return iter(())
    def __getitem__(self, key): return self
    def __call__(self, *arguments, **names): return self
    def __getattr__(self, name): return self
    def __enter__(self): return self
    def __exit__(self, *error): return False
    def __add__(self, other): return self
    __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __add__
    def __abs__(self): return self
    def __round__(self, digits=None): return self
    def __float__(self): return 0.0
    def __int__(self): return 0
"""
_EMPTY = """for each in (*arguments, *names.values()):
        if hasattr(each, "clear"):
            each.clear()
    return None"""

_BODIES: Mapping[str, str] = {
    "a stub that returns None": "return None",
    "a stub that returns 0": "return 0",
    'a stub that returns ""': 'return ""',
    "a stub that returns []": "return []",
    "a stub that returns True": "return True",
    "a stub that returns its argument": "return arguments[0] if arguments else None",
    "a stub that raises": 'raise ValueError("stub")',
    "a stub that empties its arguments": _EMPTY,
    "a stub whose result equals everything": "return _Equal()",
}


def stubs(functions: Iterable[str], classes: Iterable[str]) -> dict[str, str]:
    """Return modules by what is said of them.

    Args:
        functions: Names of the functions that tests call.
        classes: Names of the classes; every method of theirs does what the functions do.
    """
    calls, kinds = sorted(functions), sorted(classes)
    return {said: _module(body, calls, kinds) for said, body in _BODIES.items()}


def _module(body: str, functions: Iterable[str], classes: Iterable[str]) -> str:
    parts = [_EQUAL, f"def _stub(*arguments, **names):\n    {body}\n"]
    parts += [f"{name} = _stub\n" for name in functions]
    for name in classes:
        parts.append(
            f"class {name}:\n"
            "    def __init__(self, *arguments, **names): pass\n"
            "    def __getattr__(self, name):\n"
            '        if name[:2] == "__": raise AttributeError(name)\n'
            "        return _stub\n"
        )
    return "".join(parts)
