"""Import contracts (pyproject.toml, decision 0046) leave out no package and no library.

import-linter sees imports alone: what a pure package must not call is looked for here.
"""

import ast
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CONTRACTS = PROJECT["tool"]["importlinter"]["contracts"]
PROTECTED = {name for rule in CONTRACTS for name in rule.get("protected_modules", ())}
OF_TYPE_CHECKERS = "_typeshed"
OF_TASK_IMAGES = "pytest"
OF_DATA = {"tzdata"}
"""Dependencies that zoneinfo reads and nobody imports."""
LIBRARIES_OF_THE_GATEWAY = {"certifi", "h11", "jwt", "pydantic", "pydantic_core"}
"""With those of the messages that it reads."""
PROVIDERS = ("securebench.agents.providers",)
FOUNDATIONS = {
    "clock",
    "digests",
    "errors",
    "json_values",
    "names",
    "plugins",
    "reasons",
    "sizes",
    "text",
    "version",
}
"""Modules below all packages."""
TOP = "securebench.cli"
"""The highest layer, so that the contract of the layers protects it from everybody."""
PURE_STANDARD_LIBRARY = """
__future__ abc ast base64 binascii builtins codecs collections copy dataclasses datetime decimal
difflib enum fnmatch fractions functools graphlib hashlib heapq importlib ipaddress itertools json
math operator pathlib posixpath re shlex statistics sys tomllib types typing unicodedata zlib
zoneinfo
"""
"""What pure packages import without an exception in the contract: it computes, or names types, or
is a table (time zones)."""
IMPURE_CALLS = """
__import__ breakpoint clock_gettime elapsed_seconds eval exec exists exit fromtimestamp getenv glob
import_module input is_dir is_file iterdir mkdir monotonic now open print read_bytes read_text rglob
stat SystemClock today unlink utcnow write_bytes write_text
"""
ALLOWED_CALLS = {
    # The clock of the machine, which pure packages do not import.
    ("securebench.clock", "clock_gettime"),
    ("securebench.clock", "monotonic"),
    # In UTC, of a number that is given.
    ("securebench.clock", "fromtimestamp"),
    ("securebench.suite.rounds", "fromtimestamp"),
    # The clock that was given.
    ("securebench.clock", "now"),
    # A manifest carries programs of the installed package as text.
    ("securebench.run.verification.checks", "read_text"),
}
CLOCKS_OF_THE_MACHINE = {
    "securebench.clock.SystemClock",
    "securebench.clock.elapsed_seconds",
}
"""Beside the pure parts of their module: import-linter takes modules, not names."""
PRODUCT = ROOT / "operator" / "securebench"
MODULES = {
    ".".join(path.relative_to(PRODUCT.parent).with_suffix("").parts).removesuffix(
        ".__init__"
    ): ast.parse(path.read_text(encoding="utf-8"))
    for path in PRODUCT.rglob("*.py")
}
"""The syntax tree of each module; read once, when tests are collected."""


def contract(beginning):
    (found,) = [rule for rule in CONTRACTS if rule["name"].startswith(beginning)]
    return found


def below(module, names):
    return any(module == name or module.startswith(f"{name}.") for name in names)


def imported(nodes):
    """Yield the modules that import statements among the nodes name."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


def libraries(tree):
    """Return the packages outside of the product that a module imports."""
    return {name.partition(".")[0] for name in imported(ast.walk(tree))} - {"securebench"}


PURE = contract("pure packages")["source_modules"]


def test_every_module_is_pure_or_protected():
    stray = {name for name in MODULES if not below(name, (*PURE, *PROTECTED, TOP))}
    assert stray - {"securebench", "securebench.benchmark"} == set()


def test_every_library_that_is_imported_is_protected():
    used = {library for tree in MODULES.values() for library in libraries(tree)}
    assert used - sys.stdlib_module_names - {OF_TYPE_CHECKERS} - PROTECTED == set()


def test_every_declared_dependency_is_protected():
    extras = PROJECT["project"]["optional-dependencies"]
    declared = {
        requirement.partition(">")[0].partition("[")[0]
        for requirement in (*PROJECT["project"]["dependencies"], *extras["report"])
    }
    installed = packages_distributions()
    covered = {
        name.lower().replace("_", "-") for module in PROTECTED for name in installed.get(module, ())
    }
    assert declared - covered == OF_DATA


def test_no_library_is_left_out_of_the_standard_library_only():
    forbidden = set(contract("files and what runs in Pods")["forbidden_modules"])
    outside = {name for name in PROTECTED if not name.startswith("securebench.")}
    assert outside - {OF_TASK_IMAGES} == forbidden


def test_nothing_is_left_out_of_what_the_gateway_does_not_know():
    forbidden = set(contract("the gateway knows")["forbidden_modules"])
    libraries = {name for name in PROTECTED if not name.startswith("securebench.")}
    assert libraries - forbidden == LIBRARIES_OF_THE_GATEWAY | {OF_TASK_IMAGES}
    agents = {name for name in MODULES if name.startswith("securebench.agents.")}
    assert {name for name in agents if not below(name, (*forbidden, *PROVIDERS))} == set()
    processes = contract("processes import")["layers"]
    lower = {name for layer in processes[3:] for name in layer.split(" | ")}
    known = {name for name in lower if f"securebench.{name}" not in forbidden}
    assert known == {"agents", "files", "protocol", *FOUNDATIONS}


def test_no_package_is_left_out_of_what_is_not_in_task_images():
    packages = {".".join(name.split(".")[:2]) for name in MODULES} - {"securebench"}
    forbidden = set(contract("programs of task images")["forbidden_modules"])
    assert packages - {"securebench.grading"} == forbidden


def test_commands_start_without_the_extra():
    """The page alone needs the extra `report`; ``securebench compare`` prints without it."""
    passed, ahead = set(), {"securebench.cli.main", "securebench.analysis.command"}
    while ahead:
        name = ahead.pop()
        passed.add(name)
        tree = MODULES.get(name)
        ahead |= set(imported(tree.body if tree else ())) - passed
    assert passed & set(contract("the extra report")["protected_modules"]) == set()
    assert "securebench.client.output" in passed


def called(node):
    """Return the name of what is called: the last part of ``datetime.now`` or ``path.open``."""
    match node:
        case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(attr=name)):
            return name
    return None


def test_pure_packages_call_nothing_that_reads_files_or_the_clock():
    calls = {
        (module, call)
        for module, tree in MODULES.items()
        if below(module, PURE)
        for call in map(called, ast.walk(tree))
        if call in IMPURE_CALLS.split()
    }
    assert calls == ALLOWED_CALLS


def test_pure_packages_import_no_clock_of_the_machine():
    users = {
        (module, name)
        for module, tree in MODULES.items()
        for name in CLOCKS_OF_THE_MACHINE & set(imported(ast.walk(tree)))
    }
    assert {name for _, name in users} == CLOCKS_OF_THE_MACHINE
    assert {module for module, _ in users if below(module, PURE)} == set()


def excepted(module):
    """Return what the contract of pure packages lets this module import."""
    pairs = [pair.split(" -> ") for pair in contract("pure packages")["ignore_imports"]]
    return {library for by, library in pairs if below(module, [by.removesuffix(".*")])}


def test_pure_packages_import_what_computes():
    pure = {name: tree for name, tree in MODULES.items() if below(name, PURE)}
    strange = {
        (name, library)
        for name, tree in pure.items()
        for library in libraries(tree) & sys.stdlib_module_names - excepted(name)
        if library not in PURE_STANDARD_LIBRARY.split()
    }
    assert strange == set()
    paths = {
        name for tree in pure.values() for name in imported(ast.walk(tree)) if "pathlib" in name
    }
    assert paths == {"pathlib", "pathlib.PurePosixPath"}
