"""Turns tests into questions: assertions emit their operands, and expected values are removed.

Each test function becomes a module of its own beside its original file. The module has neutral names and only
the code that the test needs. It has no docstrings, comments, messages, ids, exception types or patterns.
"""

import ast
import copy
import posixpath
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from swelab.records.witness_records import Slot, WitnessManifest
from swelab.witness import MODULE
from swelab.witness.emitted import Data
from swelab.witness.mixins import taken_over
from swelab.witness.node_ids import base_of, locate
from swelab.witness.pruning import Pruner, drop_unused_imports, fill_empty
from swelab.witness.questions import ALIAS, Form, Questioner, strip_texts
from swelab.witness.scopes import FUNCTIONS, Function, Scopes
from swelab.witness.slicing import Slicer, find, inheriting, rename_chain, slice_module
from swelab.witness.subjects import Subjects, is_test
from swelab.witness.visible_constants import constants, hashes


class Results(ast.NodeTransformer):
    """Rewrites a test function in place. slots: one slot, or none if the test does not call the package."""

    def __init__(self, subjects: Subjects, test: str, first: int):
        self.subjects, self.test, self.first = subjects, test, first
        self.slots: list[Slot] = []
        self.count = 0

    def run(self, function: Function) -> None:
        """Rewrites the statements of a test."""
        for each in function.body:
            self.visit(each)

    def visit(self, node: ast.AST) -> ast.AST:
        """Visits a node. Functions and classes that the test defines are left unchanged."""
        return node if isinstance(node, (*FUNCTIONS, ast.ClassDef)) else super().visit(node)

    def visit_Expr(self, node: ast.Expr | ast.Assign) -> ast.AST:
        """Makes a call emit its result if the call is a statement or its result is assigned."""
        node.value = self._result(node.value, node)
        return node

    visit_Assign = visit_Expr

    def _result(self, value: ast.expr, node: ast.stmt) -> ast.expr:
        if not isinstance(value, ast.Call | ast.Await) or not self.subjects.holds(value):
            return value
        if not self.slots:
            slot = Slot(slot=self.first, test=self.test, line=node.lineno, asserts="truth", cut=[False])
            self.slots.append(slot | {"ops": [], "negated": False})
        self.count += 1
        asked = ast.Attribute(value=ast.Name(ALIAS, ast.Load()), attr="result", ctx=ast.Load())
        args: list[ast.expr] = [ast.Constant(self.first), ast.Constant(self.count), value]
        return ast.copy_location(ast.Call(func=asked, args=args, keywords=[]), value)


_MAX_SOURCE = 4_000_000  # characters
_WITHOUT = ("-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:unraisableexception")
"""pytest plugins that are disabled when a question runs. The last plugin would collect garbage five times at
the end."""


@dataclass(frozen=True)
class Question:
    """Tests in question form. files: texts of the question modules, by path in the repository. answers: the
    same modules with the expected values in them, which may run only with the gold patch. removed: source
    files with tests, which must be absent from the sandbox. targets: node ids of the questions. manifest:
    what was removed from the tests. unformed: maps tests that have no question form to the reason."""

    files: dict[str, str]
    answers: dict[str, str]
    removed: list[str]
    targets: list[str]
    manifest: WitnessManifest
    unformed: dict[str, str]


def command_args(targets: Sequence[str]) -> list[str]:
    """Returns the arguments with which pytest runs questions. targets: node ids of the questions."""
    return ["-p", MODULE, *_WITHOUT, "--assert=plain", *targets]


def form(
    sources: Mapping[str, str],
    tests: Sequence[str],
    roots: Collection[str] = (),
    package: Mapping[str, str] | None = None,
    first: int = 0,
) -> Question:
    """Rewrites tests as questions, which emit values instead of asserting.

    sources: texts by path in the repository: the test files, their conftest.py files, and modules in their
    folders that they import. tests: pytest node ids. roots: names of the packages under test. If empty, every
    import counts except imports of the standard library and test runners. package: maps paths to texts, for
    the package's modules with assertion classes that tests inherit. first: number of the first question, for
    its module's name. Malformed sources never raise: tests that cannot be read are reported as unformed.
    """
    parsed = {path: _parse(text) for path, text in (package or {}).items() if path not in sources}
    trees = {path: tree for path, tree in parsed.items() if isinstance(tree, ast.Module)}
    forming = _Forming(sources, roots, trees, first)
    by_base: dict[str, list[str]] = {}
    for test in dict.fromkeys(tests):
        where = locate(test, sources)
        if where is None:
            forming.unformed[test] = "its file is not among the sources, or it is no function of it"
        else:
            by_base.setdefault(base_of(where), []).append(test)
    files = {base.partition("::")[0] for base in by_base}
    forming.helpers(files)
    for base, ids in by_base.items():
        reason = forming.question(base)
        if reason:
            forming.unformed |= dict.fromkeys(ids, reason)
        else:
            forming.tests |= dict.fromkeys(ids, base)
    return forming.result(files)


@dataclass
class _Forming:
    sources: Mapping[str, str]
    roots: Collection[str]
    package: Mapping[str, ast.Module]
    first: int
    files: dict[str, str] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)
    slots: list[Slot] = field(default_factory=list)
    shown: dict[str, list[Data]] = field(default_factory=dict)
    questions: dict[str, str] = field(default_factory=dict)
    targets: list[str] = field(default_factory=list)
    tests: dict[str, str] = field(default_factory=dict)
    unformed: dict[str, str] = field(default_factory=dict)
    exported: dict[str, set[str]] = field(default_factory=dict)
    trees: dict[str, ast.Module | str] = field(default_factory=dict)
    imports: dict[str, set[str]] = field(default_factory=dict)
    slicers: dict[str, Slicer] = field(default_factory=dict)

    def tree(self, path: str) -> ast.Module | str:
        """Returns the parsed file, or the reason why it cannot be parsed."""
        if path not in self.trees:
            tree = _parse(self.sources[path])
            self.trees[path] = tree if isinstance(tree, str) else taken_over(tree, self.package)
        return self.trees[path]

    def helpers(self, names: set[str]) -> None:
        """Rewrites the modules that tests import as question modules. Records which of their names hold
        values of the package."""
        for path in self._reachable_files(names):
            tree = self.tree(path)
            imported = path not in names or self._is_imported(path, names)
            if isinstance(tree, str) or not imported:
                continue
            subjects = Subjects(Scopes(tree), self.roots, {})
            self.exported[_stem(path)] = subjects.exported_names()
            if path in names:
                tree = _without_tests(tree)
            try:
                first, texts = len(self.slots), {}
                for version in ("question", "answers"):
                    texts[version], slots = self._form_test(copy.deepcopy(tree), version, "", first)
            except (RecursionError, SyntaxError, ValueError):
                continue
            if slots or path in names:
                self.slots += slots
                self.files[path], self.answers[path] = texts["question"], texts["answers"]

    def _reachable_files(self, bound: set[str]) -> list[str]:
        """Returns the test files, the conftest.py files, and the sources that they import, directly or
        indirectly."""
        paths = {path for path in self.sources if path in bound or _stem(path) == "conftest"}
        while True:
            names = {name for path in paths for name in self._names(path)}
            more = {path for path in self.sources if _stem(path) in names} - paths
            if not more:
                return sorted(paths)
            paths |= more

    def _names(self, path: str) -> set[str]:
        if path not in self.imports:
            names = _imported_names(self.tree(path))
            if "" in names:  # `from . import name` imports from the package that contains the module
                names.add(posixpath.basename(posixpath.dirname(path)))
            self.imports[path] = names
        return self.imports[path]

    def _is_imported(self, path: str, names: set[str]) -> bool:
        others = (other for other in self._reachable_files(names) if other != path)
        return any(_stem(path) in self._names(other) for other in others)

    def question(self, base: str) -> str:
        """Makes the question module of a test function. Returns "", or the reason why no module can be
        made."""
        path, _, rest = base.partition("::")
        tree = self.tree(path)
        if isinstance(tree, str):
            return tree
        names = rest.split("::")
        home = self._imported_from(tree, names[0]) if len(names) > 1 else None
        if home is not None:
            path, tree = home
        try:
            definition = find(tree, names)
            chain = definition or inheriting(tree, names)
            if chain is None:
                return "it is not defined in its file by this name"
            if any("given(" in ast.unparse(each) for each in chain[-1].decorator_list):
                return "it draws its inputs at random"
            number, first, texts = self.first + len(self.questions), len(self.slots), {}
            if path not in self.slicers:
                self.slicers[path] = Slicer(tree)
            for version in ("question", "answers"):
                part = self.slicers[path].slice(chain)
                inner = (find if definition else inheriting)(part, names) or []
                target = rename_chain(part, inner) + ([] if definition else names[-1:])
                texts[version], slots = self._form_test(part, version, base, first, target)
        except RecursionError:
            return "its expressions are nested too deeply"
        except (SyntaxError, ValueError) as error:
            return f"its question form is not valid Python: {error}"
        if not slots and (definition or not self.slots):
            return "it asserts nothing that can be said as a value"
        name = posixpath.join(posixpath.dirname(path), f"test_question_{number}.py")
        self.files[name], self.answers[name] = texts["question"], texts["answers"]
        self.slots += slots
        self.shown[base] = constants(texts["question"])
        self.questions[name] = base
        self.targets.append(f"{name}::{'::'.join(target)}")
        return ""

    def _imported_from(self, tree: ast.Module, name: str) -> tuple[str, ast.Module] | None:
        """Returns (path, tree) of the source from which a module imports a test class, or None if there is no
        such import."""
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and any(
                (each.asname or each.name) == name for each in node.names
            ):
                stem = (node.module or "").split(".")[-1]
                for path in self.sources:
                    held = self.tree(path)
                    if _stem(path) == stem and isinstance(held, ast.Module) and held is not tree:
                        return path, held
        return None

    def _form_test(
        self, tree: ast.Module, version: str, test: str, first: int, target: Sequence[str] = ()
    ) -> tuple[str, list[Slot]]:
        shape: Form = "question" if version == "question" else "answers"
        helpers = {name: held for name, held in self.exported.items() if test}
        subjects = Subjects(Scopes(tree), self.roots, helpers)
        questioner = Questioner(subjects, shape, test, first)
        questioner.visit(tree)
        slots = questioner.slots or self._results(subjects, test, first, find(tree, target))
        fill_empty(tree)
        if shape == "question":
            strip_texts(tree)
            if target:
                Pruner(subjects).run()
                chain = find(tree, target) or inheriting(tree, target)
                tree = slice_module(tree, chain) if chain else tree
                drop_unused_imports(tree)
        fill_empty(tree)
        at = sum(isinstance(each, ast.ImportFrom) and each.module == "__future__" for each in tree.body)
        docstring = bool(tree.body) and isinstance(tree.body[0], ast.Expr) and at > 0
        tree.body.insert(at + docstring, ast.Import(names=[ast.alias(MODULE, ALIAS)]))
        text = ast.unparse(ast.fix_missing_locations(tree)) + "\n"
        compile(text, "question", "exec", dont_inherit=True)
        return text, slots

    @staticmethod
    def _results(
        subjects: Subjects, test: str, first: int, chain: Sequence[ast.ClassDef | Function] | None
    ) -> list[Slot]:
        """Makes a test without assertions emit the results of its calls."""
        made = Results(subjects, test, first)
        if chain and isinstance(chain[-1], FUNCTIONS):
            made.run(chain[-1])
        return made.slots

    def result(self, names: set[str]) -> Question:
        """Returns the question for all tests that could be rewritten."""
        reached = set(self._reachable_files(names))
        others = {path for path in self.sources if path not in reached and _has_tests(self.tree(path))}
        removed = sorted(path for path in names | others if path not in self.files)
        manifest = WitnessManifest(
            tests=self.tests,
            unformed=self.unformed,
            questions=self.questions,
            slots=self.slots,
            sight={base: hashes(each) for base, each in self.shown.items()},
            shown=self.shown,
        )
        return Question(self.files, self.answers, removed, self.targets, manifest, self.unformed)


def _parse(text: str) -> ast.Module | str:
    if len(text) > _MAX_SOURCE:
        return f"its file has more than {_MAX_SOURCE} characters"
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError) as error:
        return f"its file is not Python of this version: {error}"
    except (RecursionError, MemoryError):
        return "its file is nested too deeply"


def _stem(path: str) -> str:
    name = posixpath.basename(path).removesuffix(".py")
    return posixpath.basename(posixpath.dirname(path)) if name == "__init__" else name


def _imported_names(tree: ast.Module | str) -> set[str]:
    """Returns the last names of the modules that a module imports."""
    names: set[str] = set()
    for node in ast.walk(tree) if isinstance(tree, ast.Module) else ():
        if isinstance(node, ast.Import):
            names |= {each.name.split(".")[-1] for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {(node.module or "").split(".")[-1], *(each.name for each in node.names)}
    return names


def _has_tests(tree: ast.Module | str) -> bool:
    nodes = ast.walk(tree) if isinstance(tree, ast.Module) else ()
    return any(isinstance(each, FUNCTIONS) and is_test(each.name) for each in nodes)


def _without_tests(tree: ast.Module) -> ast.Module:
    """Returns a copy of a test module without its test functions, for modules that import other names from
    it."""
    kept = [each for each in tree.body if not (isinstance(each, FUNCTIONS) and is_test(each.name))]
    return ast.Module(body=copy.deepcopy(kept), type_ignores=[])
