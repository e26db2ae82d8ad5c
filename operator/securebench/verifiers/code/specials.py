"""Special methods: which of them the tests' stand-ins for the candidate's objects have."""

from __future__ import annotations

SPECIAL_METHODS = {
    "__len__": "len",
    "__length_hint__": "length_hint",
    "__iter__": "iter",
    "__next__": "next",
    "__reversed__": "reversed",
    "__contains__": "contains",
    "__getitem__": "getitem",
    "__setitem__": "setitem",
    "__delitem__": "delitem",
    "__call__": "call",
    "__enter__": "enter",
    "__exit__": "exit",
    "__await__": "await",
    "__bool__": "bool",
    "__hash__": "hash",
    "__eq__": "eq",
    "__int__": "int",
    "__float__": "float",
    "__complex__": "complex",
    "__index__": "index",
    "__bytes__": "bytes",
    "__round__": "round",
    "__trunc__": "trunc",
    "__floor__": "floor",
    "__ceil__": "ceil",
    "__abs__": "abs",
    "__neg__": "neg",
    "__pos__": "pos",
    "__invert__": "invert",
}
"""Present in a stand-in exactly where the candidate's class has them: Python looks for them."""

BINARY = {
    "__add__": "add",
    "__sub__": "sub",
    "__mul__": "mul",
    "__truediv__": "truediv",
    "__floordiv__": "floordiv",
    "__mod__": "mod",
    "__matmul__": "matmul",
    "__lshift__": "lshift",
    "__rshift__": "rshift",
    "__and__": "and_",
    "__or__": "or_",
    "__xor__": "xor",
    "__pow__": "pow",
    "__divmod__": "divmod",
}
"""Operators with two operands; every stand-in has them, also reflected and in place."""

COMPARISONS = {"__lt__": "lt", "__le__": "le", "__gt__": "gt", "__ge__": "ge"}
