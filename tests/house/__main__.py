"""``make house``: how large the product is, and how much of it a reader meets on the way of a task.

The static figures are read from the syntax trees. The two ways are traced: a text row and a patch
by codex run on the fake cluster, and each module of the operator of which a function is called
counts. Beside it stands the number of modules that docs/architecture.md lists for the way, which
its test compares with the same trace. With ``--before COMMIT`` the script also measures a checkout
of that commit in a temporary folder.

Programs that measure the product stand below ``tests`` because they use its fakes and fixtures, but
they are no tests: no test run collects them (``TOOLS``, and ``norecursedirs`` of pyproject.toml).
They are counted on a line of their own, and so are the data files of the tests.
"""

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

VALUE_BASES = {"NamedTuple", "TypedDict"}
TOOLS = ("bench", "house", "scale")
"""Folders of ``tests`` whose programs measure the product: ``make bench``, ``house``, ``scale``."""

DATA = {".yaml", ".yml", ".json", ".jsonl"}
AIMS = {
    "product lines": "58000",
    "product modules": "330",
    "import lines, %": "6",
    "value classes per 1,000 lines": "4",
    "modules on the way of a text row": "55",
    "modules on the way of a patch": "80",
    "test lines": "95000",
}
TRACE = """
import sys, tempfile, json
from pathlib import Path
sys.path[:0] = ["tests", "tests/unit/docs"]
import test_architecture as ways
from support.agent_world import RepositoryWorld
from support.operator_world import World, opened
found = {}
with tempfile.TemporaryDirectory() as folder:
    with opened(World, Path(folder, "row")) as world, ways.traced() as passed:
        world.work(world.apply(taskSelector={"limit": 1}))
    found["a text row"] = len(passed)
    with ways.traced() as passed, opened(RepositoryWorld, Path(folder, "patch")) as world:
        world.work(world.begin(), rounds=30)
    found["a patch"] = len(passed)
print(json.dumps(found))
"""


def trees(root: Path) -> Iterator[tuple[str, ast.Module]]:
    """Yield the text and the tree of each Python file of the product."""
    for path in sorted((root / "operator" / "securebench").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if text.strip():
            yield text, ast.parse(text)


def lines_of(node: ast.stmt) -> int:
    """Return the number of source lines of a statement."""
    return (node.end_lineno or node.lineno) - node.lineno + 1


def is_value_class(node: ast.ClassDef) -> bool:
    """Return whether a class is a dataclass, a named tuple or a typed dictionary."""
    decorators = {ast.unparse(each).split("(")[0].split(".")[-1] for each in node.decorator_list}
    bases = {ast.unparse(each).split("[")[0].split(".")[-1] for each in node.bases}
    return "dataclass" in decorators or bool(bases & VALUE_BASES)


def has_method(node: ast.ClassDef) -> bool:
    """Return whether a class defines a function."""
    return any(isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) for each in node.body)


def calls(tree: ast.Module) -> Iterator[str]:
    """Yield the last name of whatever a module calls."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            yield node.func.id if isinstance(node.func, ast.Name) else node.func.attr


def static_figures(root: Path) -> dict[str, str]:
    """Return the figures that the sources alone give."""
    read = list(trees(root))
    nodes = [node for _, tree in read for node in ast.walk(tree)]
    lines = sum(len(text.splitlines()) for text, _ in read)
    imported = sum(
        lines_of(node) for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)
    )
    values = [node for node in nodes if isinstance(node, ast.ClassDef) and is_value_class(node)]
    built = Counter(name for _, tree in read for name in calls(tree))
    carriers = [node for node in values if not has_method(node) and built[node.name] <= 1]
    functions = [
        lines_of(node) for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return {
        "product lines": str(lines),
        "product modules": str(len(read)),
        "import lines, %": f"{100 * imported / lines:.1f}",
        "value classes per 1,000 lines": f"{1000 * len(values) / lines:.1f}",
        "value classes without a method, built in one place": str(len(carriers)),
        "functions: median lines": str(int(median(functions))),
        "functions above 50 lines": str(sum(each > 50 for each in functions)),
    } | lines_of_tests(root / "tests")


def lines_of_tests(folder: Path) -> dict[str, str]:
    """Return the lines of the tests' programs and of their data, without those of scenarios."""
    found: Counter[str] = Counter()
    for path in folder.rglob("*"):
        if path.suffix not in {".py", *DATA} or "scenarios" in path.parts:
            continue
        is_tool = path.relative_to(folder).parts[0] in TOOLS
        programs = "lines of tools that measure" if is_tool else "test lines"
        name = programs if path.suffix == ".py" else "lines of test data"
        found[name] += len(path.read_bytes().splitlines())
    names = ("test lines", "lines of test data", "lines of tools that measure")
    return {name: str(found[name]) for name in names}


def on_the_way(root: Path) -> dict[str, str]:
    """Return how many modules the two traced runs call, and how many the table of each lists."""
    environment = os.environ | {"PYTHONPATH": f"{root / 'operator'}:{root / 'tests'}"}
    traced = subprocess.run(
        [sys.executable, "-c", TRACE],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(traced.stdout.splitlines()[-1])
    listed = re.findall(
        r"These are (\d+) modules", (root / "docs" / "architecture.md").read_text(encoding="utf-8")
    )
    return {
        f"modules on the way of {name}": f"{number}"
        for name, number in zip(("a text row", "a patch"), listed, strict=True)
    } | {f"modules called in a run of {name}": str(number) for name, number in found.items()}


def figures(root: Path) -> dict[str, str]:
    """Return all figures of a checkout."""
    return static_figures(root) | on_the_way(root)


def figures_of(commit: str, root: Path) -> dict[str, str]:
    """Return the figures of a commit, from a checkout that is removed afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "archive", commit], cwd=root, capture_output=True, check=True
        )
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        return figures(Path(folder))


def main() -> None:
    """Print the figures of the working tree, beside those of another commit and the aims."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", metavar="COMMIT")
    options = parser.parse_args()
    root = Path(__file__).parents[2]
    columns = {options.before: figures_of(options.before, root)} if options.before else {}
    columns["now"] = figures(root)
    table = Table("", *columns, "aim, at most")
    for name in columns["now"]:
        table.add_row(name, *(each.get(name, "") for each in columns.values()), AIMS.get(name, ""))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
