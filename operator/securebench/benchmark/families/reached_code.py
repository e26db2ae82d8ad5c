"""What of a test source runs when it runs as one module, found without running it. Pure.

In doubt code counts as reached: who finds nothing here may still have tests that prove nothing,
but what is named is certain.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

CHECK = "check"
_BROKEN = (SyntaxError, ValueError, RecursionError, MemoryError)
_MAIN = ("__main__", "__name__")
_DYNAMIC = frozenset((
    "globals", "locals", "vars", "exec", "eval", "compile", "__import__", "importlib", "runpy",
    "doctest", "subprocess", "modules", "__init_subclass__", "metaclass", "gc", "inspect",
    "settrace", "setprofile",
))  # fmt: skip
"""Names with which a source may reach everything, in ways that its text does not show."""
_LOADERS = frozenset((
    "main", "TextTestRunner", "TestLoader", "defaultTestLoader", "TestSuite", "TestProgram",
    "makeSuite", "findTestCases",
))  # fmt: skip
"""Names with which a source runs its own test cases."""
_PASSIVE = frozenset(
    ["pytest", "unittest", "functools", "contextlib", "hypothesis", "parameterized", "mock"]
)
"""Modules whose decorators do not call what they decorate; nor do these builtins."""
_PASSIVE_BUILTINS = frozenset(("staticmethod", "classmethod", "property"))
_COMPARING = frozenset((
    "assertEqual", "assertNotEqual", "assertIn", "assertNotIn", "assertLess", "assertGreater",
))  # fmt: skip
_CHANGING = frozenset(("append", "extend", "setdefault"))
"""Methods of unittest and of containers; more of the latter are those of many classes too."""
_LOOKS = frozenset(("callable", "hasattr"))
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def uncalled_check(source: str) -> int | None:
    """Return the line of a ``check(candidate)`` that the source defines and never calls, or None.

    Args:
        source: One that does not parse has none.
    """
    tree = _parsed(source)
    if tree is None:
        return None
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == CHECK and _takes_one(node):
            return None if CHECK in _walked(tree, frozenset()).mentioned else node.lineno
    return None


def candidate_names(source: str) -> frozenset[str]:
    """Return the names that the tests take from the candidate, as far as their text shows them."""
    tree = _parsed(source)
    return frozenset() if tree is None else frozenset(_walked(tree, frozenset()).candidates)


def needs_one_process(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and defect where tests compare or change what another process has.

    Objects are those that the tests make of the candidate's classes, directly or in a variable that
    holds nothing else.
    """
    tree = _parsed(source)
    if tree is None:
        return
    classes = {name for name in candidate_names(source) if name[:1].isupper()}
    scopes = [tree, *(node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS))]
    members = _made(
        [node for scope in scopes for node in _own_nodes(scope)], classes, is_member=True
    )
    for scope in scopes:
        nodes = list(_own_nodes(scope))
        made = {**members, **_made(nodes, classes, is_member=False)}
        for node in nodes:
            for side in _compared(node):
                name = made.get(ast.unparse(side)) or _class_of(side, classes)
                if name:
                    what = (
                        f"an object of {name} is compared; compare values that its methods return"
                    )
                    yield side.lineno, what
                    break
            changed = _changed(node)
            if changed is not None and ast.unparse(changed.value) in made:
                text = ast.unparse(changed)
                yield changed.lineno, f"{text} is changed, of which the tests have a copy"


def _made(nodes: Iterable[ast.AST], classes: set[str], *, is_member: bool) -> dict[str, str]:
    """Return variables that hold objects of the candidate's classes alone, or else attributes."""
    kind = ast.Attribute if is_member else ast.Name
    given: dict[str, list[str]] = {}
    stored: dict[str, int] = {}
    for node in nodes:
        if isinstance(node, kind) and not isinstance(node.ctx, ast.Load):
            stored[ast.unparse(node)] = stored.get(ast.unparse(node), 0) + 1
        if isinstance(node, ast.Assign):
            for target in node.targets:
                given.setdefault(ast.unparse(target), []).append(_class_of(node.value, classes))
    return {
        text: names[0]
        for text, names in given.items()
        if len(names) == stored.get(text) and names[0] and len({*names}) == 1
    }


def _class_of(node: ast.AST, classes: set[str]) -> str:
    name = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
    return name if name in classes else ""


def _compared(node: ast.AST) -> Iterable[ast.expr]:
    if isinstance(node, ast.Compare):
        is_identity = any(isinstance(each, ast.Is | ast.IsNot) for each in node.ops)
        return () if is_identity else (node.left, *node.comparators)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return ()
    return node.args[:2] if node.func.attr in _COMPARING else ()


def _changed(node: ast.AST) -> ast.Attribute | None:
    """Return the attribute of which a statement changes the contents."""
    changed: ast.AST | None = None
    if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
        changed = node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        changed = node.func.value if node.func.attr in _CHANGING else None
    return changed if isinstance(changed, ast.Attribute) else None


def never_run(source: str, asked: frozenset[str]) -> Iterator[tuple[int, str]]:
    """Yield line and defect of tests that never run, or of a source that uses no candidate.

    Args:
        source: One that does not parse has no such defect.
        asked: Names that prompt or starter code define.
    """
    tree = _parsed(source)
    if tree is None:
        return
    walk = _walked(tree, asked)
    if walk.is_dynamic:
        return
    unreached = [node for node in tree.body if walk.is_idle(node)]
    for node in unreached[:1]:
        yield node.lineno, _remedy(node, walk.lazy)
    if unreached or walk.uses_candidate:
        return
    if walk.main_line:
        yield (
            walk.main_line,
            (
                "the block of __main__ never runs, since __name__ is __securebench_tests__:"
                " write its lines without the if"
            ),
        )
    else:
        yield 1, "nothing of the candidate is called: call it, and assert what it returns"


def _remedy(node: ast.stmt, lazy: frozenset[str]) -> str:
    if isinstance(node, ast.ClassDef):
        return (
            f"nothing runs the class {node.name}: end the source with assert"
            " unittest.TextTestRunner().run(unittest.defaultTestLoader.loadTestsFromTestCase"
            f"({node.name})).wasSuccessful()"
        )
    name = getattr(node, "name", CHECK)
    if name in lazy:
        return f"{name} is a coroutine or a generator that nothing runs: make it a plain function"
    if name == CHECK:
        return (
            "check is never called: name the candidate's function in input.entry_point, or call"
            " check with it in the last line"
        )
    return f"{name} is never called: end the source with the line {name}()"


def _parsed(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except _BROKEN:
        return None


def _takes_one(node: ast.FunctionDef) -> bool:
    places = len(node.args.posonlyargs) + len(node.args.args)
    needed = places - len(node.args.defaults)
    named = any(default is None for default in node.args.kw_defaults)
    return not named and needed <= 1 and (places >= 1 or node.args.vararg is not None)


def _walked(tree: ast.Module, asked: frozenset[str]) -> _Walk:
    walk = _Walk(asked, _bound(tree), _imports(tree), frozenset(_lazy(tree)))
    try:
        for node in tree.body:
            walk.visit(node)
        walk.follow()
    except RecursionError:
        walk.is_dynamic = True
    return walk


def _lazy(tree: ast.Module) -> Iterator[str]:
    """Yield functions whose call alone runs nothing: coroutines and generators."""
    for node in tree.body:
        if isinstance(node, ast.AsyncFunctionDef) or (
            isinstance(node, ast.FunctionDef) and any(map(_is_yield, _own_nodes(node)))
        ):
            yield node.name


def _is_yield(node: ast.AST) -> bool:
    return isinstance(node, ast.Yield | ast.YieldFrom)


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (*_FUNCTIONS, ast.Lambda, ast.ClassDef)):
            yield child
            yield from _own_nodes(child)


def _imports(tree: ast.Module) -> dict[str, str]:
    """Return the modules that imported names come from."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {(n.asname or n.name).partition(".")[0]: n.name for n in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {(n.asname or n.name): f"{node.module}.{n.name}" for n in node.names}
    return found


def _bound(tree: ast.Module) -> frozenset[str]:
    """Return names of the module that are the source's own wherever it reads them."""
    firmly = {n.name for n in tree.body if isinstance(n, (*_FUNCTIONS, ast.ClassDef))}
    stored: dict[str, int] = {}
    loaded: dict[str, int] = {}
    for node in _own_nodes(tree):
        if isinstance(node, ast.Name):
            places = loaded if isinstance(node.ctx, ast.Load) else stored
            places[node.id] = min(places.get(node.id, node.lineno), node.lineno)
    own = {name for name, line in stored.items() if line <= loaded.get(name, line)}
    return frozenset(firmly | _handled(tree) | (own - _self_assigned(tree)))


def _handled(tree: ast.AST) -> set[str]:
    nodes = _own_nodes(tree)
    return {n.name for n in nodes if isinstance(n, ast.ExceptHandler) and n.name}


def _local(node: ast.AST) -> frozenset[str]:
    """Return names that are a function's own."""
    arguments = getattr(node, "args", None)
    found = _handled(node)
    if arguments is not None:
        found |= {each.arg for each in ast.walk(arguments) if isinstance(each, ast.arg)}
    for each in _own_nodes(node):
        if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load):
            found.add(each.id)
    for child in ast.walk(node):
        if child is not node and isinstance(child, (*_FUNCTIONS, ast.ClassDef)):
            found.add(child.name)
    told = [n for n in _own_nodes(node) if isinstance(n, ast.Global)]
    return frozenset(found - {name for each in told for name in each.names})


def _self_assigned(tree: ast.Module) -> set[str]:
    """Return names as in ``function = function``: what they were before is not the source's."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            read = {name.id for name in ast.walk(node.value) if isinstance(name, ast.Name)}
            found |= read & {n.id for n in node.targets if isinstance(n, ast.Name)}
    return found


@dataclass
class _Walk(ast.NodeVisitor):
    """Follows a source from its first line, and what it calls by name.

    Attributes:
        asked: Names that the task asks for.
        bound: Names of the source itself.
        imports: Where imported names come from.
        lazy: Functions whose call alone runs nothing.
        mentioned: Names and attributes that reached code reads.
        candidates: Names of the candidate that reached code reads.
        uses_candidate: Whether reached code does more than look at the candidate.
    """

    asked: frozenset[str]
    bound: frozenset[str]
    imports: dict[str, str]
    lazy: frozenset[str]
    mentioned: set[str] = field(default_factory=set)
    bases: dict[str, set[str]] = field(default_factory=dict)
    pending: list[tuple[frozenset[str], list[ast.stmt], frozenset[str]]] = field(
        default_factory=list
    )
    locals: frozenset[str] = frozenset()
    owner: str = ""
    candidates: set[str] = field(default_factory=set)
    uses_candidate: bool = False
    is_dynamic: bool = False
    main_line: int = 0

    def is_idle(self, node: ast.stmt) -> bool:
        """Tell whether a statement defines tests that nothing runs."""
        if isinstance(node, ast.ClassDef):
            is_case = any("TestCase" in ast.unparse(base) for base in node.bases)
            is_test = is_case or node.name.startswith("Test")
            return is_test and _has_tests(node) and not self._is_reached(node.name)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return False
        is_test = node.name == CHECK or node.name.startswith("test_")
        return is_test and not self._runs_when_made(node) and not self._is_reached(node.name)

    def follow(self) -> None:
        """Visit what reached code names, until nothing is new."""
        while True:
            for name in tuple(self.mentioned & self.bases.keys()):
                self.mentioned |= self.bases.pop(name)
            now = [each for each in self.pending if self._is_any_reached(each[0])]
            self.pending = [each for each in self.pending if each not in now]
            for _, body, inner in now:
                self._visit_all(body, inner)
            if not now:
                return

    def _is_reached(self, name: str) -> bool:
        return self._is_any_reached((name,))

    def _is_any_reached(self, names: Iterable[str]) -> bool:
        return bool(self.mentioned & {*names, *_LOADERS})

    def _visit_all(self, nodes: Iterable[ast.AST], inner: frozenset[str] | None = None) -> None:
        outer = self.locals
        self.locals = outer if inner is None else inner
        for node in nodes:
            self.visit(node)
        self.locals = outer

    def _runs_when_made(self, node: ast.stmt) -> bool:
        return any(map(self._calls_it, getattr(node, "decorator_list", ())))

    def _calls_it(self, decorator: ast.expr) -> bool:
        root: ast.AST = decorator
        while isinstance(root, ast.Attribute | ast.Call):
            root = root.func if isinstance(root, ast.Call) else root.value
        name = root.id if isinstance(root, ast.Name) else ""
        module = self.imports.get(name, "")
        is_passive = bool(_PASSIVE & set(module.split("."))) or name in _PASSIVE_BUILTINS
        return not is_passive

    def _visit_function(self, node: _Function) -> None:
        self._mention(node.name, is_name=False, only_dynamic=True)
        self._visit_all(node.decorator_list)
        self._visit_all((*node.args.defaults, *filter(None, node.args.kw_defaults)))
        inner = self.locals | _local(node)
        if self._runs_when_made(node):
            self._visit_all(node.body, inner)
        else:
            names = frozenset((node.name, self.owner or node.name))
            self.pending.append((names, node.body, inner))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Its body runs when somebody calls it."""
        self._visit_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        """Its body runs when somebody awaits it."""
        self._visit_function(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Its body runs, its methods when somebody names it."""
        self._visit_all((*node.decorator_list, *(each.value for each in node.keywords)))
        for word in node.keywords:
            self._mention(word.arg or "", is_name=False, only_dynamic=True)
        if node.decorator_list and self._runs_when_made(node):
            self.mentioned.add(node.name)
        named = self.bases.setdefault(node.name, set())
        for base in node.bases:
            if isinstance(base, ast.Name) and base.id in self.bound:
                named.add(base.id)
            else:
                self.visit(base)
        outer, self.owner = self.owner, node.name
        self._visit_all(node.body)
        self.owner = outer

    def visit_Assign(self, node: ast.Assign) -> None:
        """A named lambda is a function."""
        names = frozenset(n.id for n in node.targets if isinstance(n, ast.Name))
        if isinstance(node.value, ast.Lambda) and len(names) == len(node.targets):
            body: ast.stmt = ast.copy_location(ast.Return(node.value.body), node.value)
            self.pending.append((names, [body], self.locals | _local(node.value)))
        else:
            self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        """A block of ``__main__`` does not run, nor what stands behind a false constant."""
        held = _holds(node.test)
        if held is None:
            self.generic_visit(node)
            return
        if not held and not isinstance(node.test, ast.Constant):
            self.main_line = self.main_line or node.lineno
        self._visit_all(node.body if held else node.orelse)

    def visit_Expr(self, node: ast.Expr) -> None:
        """A name alone does nothing, and a coroutine that nobody awaits does not run."""
        value = node.value
        if isinstance(value, ast.Name):
            return
        is_lazy = isinstance(value, ast.Call) and getattr(value.func, "id", "") in self.lazy
        self._visit_all(_arguments(value) if is_lazy else (value,))

    def visit_Lambda(self, node: ast.Lambda) -> None:
        """Its arguments are its own."""
        self._visit_all((node.args, node.body), self.locals | _local(node))

    def visit_Assert(self, node: ast.Assert) -> None:
        """That something is there says nothing of what it does."""
        if not isinstance(_plain(node.test), ast.Name):
            self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        """Identity with None says nothing of what it does."""
        is_look = all(isinstance(each, ast.Is | ast.IsNot) for each in node.ops)
        sides = (node.left, *node.comparators)
        for side in sides:
            if not (is_look and isinstance(side, ast.Name)):
                self.visit(side)

    def visit_Call(self, node: ast.Call) -> None:
        """Asking whether something can be called says nothing of what it does."""
        if isinstance(node.func, ast.Name) and node.func.id in _LOOKS:
            self._visit_all(each for each in node.args if not isinstance(each, ast.Name))
        else:
            self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        """Note who is named."""
        if isinstance(node.ctx, ast.Load):
            self._mention(node.id, is_name=True)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """Note who is named."""
        self._mention(node.attr, is_name=False)
        self.visit(node.value)

    def visit_Import(self, node: ast.Import) -> None:
        """Note modules that reach everything."""
        for each in node.names:
            self._imported(each.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Note modules that reach everything, and the candidate's own."""
        self._imported(node.module or "")
        if "securebench_candidate" in (node.module or ""):
            self.candidates |= {each.name for each in node.names}

    def _imported(self, name: str) -> None:
        if "securebench_candidate" in name:
            self.uses_candidate = True

    def _mention(self, name: str, *, is_name: bool, only_dynamic: bool = False) -> None:
        if name in _DYNAMIC and name not in self.bound | self.asked:
            self.is_dynamic = True
        if only_dynamic:
            return
        self.mentioned.add(name)
        if is_name and self._is_candidate(name):
            self.candidates.add(name)
            self.uses_candidate = True

    def _is_candidate(self, name: str) -> bool:
        if name in self.bound | self.locals or name in self.imports:
            return False
        return name in self.asked or not (hasattr(builtins, name) or name in _MAIN)


def _plain(test: ast.expr) -> ast.expr:
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test = test.operand
    return test


def _arguments(call: ast.expr) -> Iterator[ast.AST]:
    if isinstance(call, ast.Call):
        yield from (each for each in call.args if not isinstance(each, ast.Name))


def _has_tests(node: ast.ClassDef) -> bool:
    return any(isinstance(n, _FUNCTIONS) and n.name.startswith("test") for n in node.body)


def _holds(test: ast.expr) -> bool | None:
    """Return what a condition is in every run, or None."""
    if isinstance(test, ast.Constant):
        return bool(test.value)
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        sides = {ast.unparse(test.left), ast.unparse(test.comparators[0])}
        if sides == {"__name__", repr("__main__")}:
            return {ast.Eq: False, ast.NotEq: True}.get(type(test.ops[0]))
    return None
