"""Python test sources of a pack, compiled by our own Python: nothing of them runs.

Versions of Python differ in what they take. What only some of them refuse is a doubt, for the
task's image has a Python of its own; everything else is certain.
"""

from __future__ import annotations

import ast
import re
import warnings
from typing import Final

from securebench.benchmark.lint.problem import GraderProblem

_OLDER_WORDS: Final = re.compile(
    r"Missing parentheses in call to|multiple exception types must be parenthesized"
    r"|leading zeros in decimal|invalid (?:decimal|hexadecimal|octal) literal"
    r"|inconsistent use of tabs|Generator expression must be parenthesized"
    r"|inside (?:list|set|dict|generator) (?:comprehension|expression)|parenthesized context"
    r"|f-string|t-string"
)
"""What compilers say of syntax that another version takes: Python 2, or string forms since 3.12."""

_OTHER_SYNTAX: Final = re.compile(
    r"""^\s*(?:print|exec|raise)\s+[^(=\s]   # statements of Python 2
    |^\s*except\s+[^:(]+,                    # Python 2, and again since 3.14
    |<>|`|\bur['"]                           # operators and prefixes of Python 2
    |\b(?:async|await)\b                     # names before 3.7
    |\b[rR]?[fFtT][rR]?['"]                  # quotes within f-strings since 3.12, t-strings
    |^\s*(?:async\s+)?(?:def|class|type)\s+\w+\s*\[   # type parameters since 3.12
    |^\s*type\s+\w+\s*=                      # since 3.12
    |^\s*lazy\s+(?:import|from)\b            # since 3.15
    """,
    re.VERBOSE,
)
"""Lines that another version than ours may take."""

_MAKES_TESTS: Final = frozenset(
    {"globals", "exec", "eval", "setattr", "vars", "pytest_generate_tests"}
)
"""Names with which a module may get tests that its text does not show."""


def source_problem(source: bytes | str, name: str) -> GraderProblem | None:
    """Return why a Python source does not compile, or None."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source, name, "exec", dont_inherit=True)
    except SyntaxError as error:
        words = f"{name}, line {error.lineno or 1}: {error.msg}"
        if _is_certain(error):
            return GraderProblem(words)
        doubt = "another version of Python, as the image's may be, could take it"
        return GraderProblem(f"{words}; {doubt}", is_certain=False)
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        return GraderProblem(f"{name} cannot be compiled here: {error}", is_certain=False)
    return None


def has_no_test(source: bytes) -> bool:
    """Return whether pytest certainly finds no test in a source that compiles.

    Anything that could make tests in another way than by ``def test…`` and classes counts as one.
    """
    return not any(map(_may_be_test, ast.walk(ast.parse(source))))


def _is_certain(error: SyntaxError) -> bool:
    line = error.text or ""
    return not (_OLDER_WORDS.search(error.msg) or _OTHER_SYNTAX.search(line))


def _may_be_test(node: ast.AST) -> bool:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return name.startswith(("test", "pytest_"))
        case ast.ClassDef(name=name, bases=bases, decorator_list=decorators):
            return name.startswith("Test") or bool(bases) or bool(decorators)
        case ast.ImportFrom(names=names) | ast.Import(names=names):
            return any(_is_test_name(alias.asname or alias.name) for alias in names)
        case ast.Name(id=name):
            return name in _MAKES_TESTS or _is_test_name(name)
        case ast.Attribute(attr=name):
            return name == "modules"
        case _:
            return False


def _is_test_name(name: str) -> bool:
    return name == "*" or name.startswith(("test", "Test"))


def is_test_module(name: str) -> bool:
    """Return whether pytest collects a file of this name from a folder by itself."""
    base = name.rpartition("/")[2]
    return base.endswith("_test.py") or (base.startswith("test_") and base.endswith(".py"))
