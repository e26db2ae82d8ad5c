"""The source of tests: calls for their effect, and what only their own process sees. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator

FILES = """
open tempfile tmp_path write_text write_bytes read_text read_bytes os.remove os.unlink
os.rename os.replace os.mkdir os.makedirs os.rmdir os.listdir os.scandir os.walk os.stat
path.exists path.isfile path.isdir path.getsize shutil glob.glob sqlite3.connect ZipFile
tarfile.open gzip.open
"""
"""Names that read or write files by their path."""

NAMES = {
    **dict.fromkeys(("random.seed", "random.setstate"), "random numbers"),
    **dict.fromkeys(
        ("sys.stdin", "sys.argv", "os.environ", "os.putenv", "os.chdir"), "its surroundings"
    ),
    **dict.fromkeys(("patch", "mock", "monkeypatch", "setattr", "reload"), "what it calls"),
    **dict.fromkeys(
        ("catch_warnings", "assertWarns", "assertWarnsRegex", "pytest.warns"), "its warnings"
    ),
    **dict.fromkeys(("assertLogs", "assertNoLogs", "addHandler", "caplog"), "its logs"),
    **dict.fromkeys(("signature", "getsource", "getfullargspec", "get_type_hints"), "its source"),
    **dict.fromkeys(("__annotations__", "__code__", "__defaults__", "__globals__"), "its source"),
    **dict.fromkeys(FILES.split(), "its files"),
}
"""Last parts of dotted names, and of whom or what they change or ask in this process alone."""


def uses_of_own_process(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, name and what of the candidate's it does not reach, each name once.

    Args:
        source: The tests; one that does not parse has none.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    seen: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and _is_identity(node) and "is" not in seen:
            seen.add("is")
            yield node.lineno, "is", "whose objects have no identity here"
        dotted = _dotted(node)
        parts = dotted.split(".")
        for name in (dotted, ".".join(parts[-2:]), parts[-1], parts[0]):
            if name in NAMES and name not in seen:
                seen.add(name)
                yield getattr(node, "lineno", 1), name, NAMES[name]
                break


IN_PLACE = "__securebench_in_place__"
"""Name, in the tests, of what calls a function for what it does to its arguments."""


def for_effect(source: str, file: str) -> ast.Module:
    """Return the tests with each call marked of whose result nothing is used.

    Only such a call changes its arguments: a candidate that empties them could otherwise change
    what its result is compared with. A result that is compared with None alone is not used.

    Args:
        source: The tests.
        file: Its name in messages.
    """
    tree = ast.parse(source, file)
    _ForEffect().visit(tree)
    return ast.fix_missing_locations(tree)


class _ForEffect(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> ast.AST:  # named by ast
        """Mark a call that is a statement."""
        self.generic_visit(node)
        call = node.value
        if isinstance(call, ast.Call):
            is_none = isinstance(call.func, ast.Attribute) and call.func.attr == "assertIsNone"
            if is_none and len(call.args) == 1:
                call.args[0] = _marked(call.args[0])
            else:
                node.value = _marked(call)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:  # named by ast
        """Mark a call that is compared with None."""
        self.generic_visit(node)
        right = node.comparators[-1]
        is_none = isinstance(right, ast.Constant) and right.value is None
        if len(node.ops) == 1 and is_none and isinstance(node.ops[0], (ast.Is, ast.Eq)):
            node.left = _marked(node.left)
        return node


def _is_identity(node: ast.Compare) -> bool:
    sides = (node.left, *node.comparators)
    is_constant = any(isinstance(side, ast.Constant) for side in sides)
    return not is_constant and any(isinstance(each, (ast.Is, ast.IsNot)) for each in node.ops)


def _marked(node: ast.expr) -> ast.expr:
    if isinstance(node, ast.Call):
        mark = ast.copy_location(ast.Name(IN_PLACE, ast.Load()), node.func)
        node.func = ast.copy_location(ast.Call(mark, [node.func], []), node.func)
    return node


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = _dotted(node.value)
        return f"{owner}.{node.attr}" if owner else node.attr
    return ""
