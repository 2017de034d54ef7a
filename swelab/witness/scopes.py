"""Resolves names to bindings in a module, through the scopes of its functions and classes.

Variables of comprehensions and lambdas count as variables of the function around them. Equal names are one
variable.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator

Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LOOPS = (ast.For, ast.AsyncFor)
WITHS = (ast.With, ast.AsyncWith)


class Scope:
    """The scope of a module, a function or a class body.

    class_name: name of the class, or of the enclosing class.
    """

    def __init__(self, node: ast.AST, parent: "Scope | None", class_name: str):
        self.node, self.parent, self.class_name = node, parent, class_name
        self.names: set[str] = set()
        self.bindings: dict[str, list[ast.AST]] = defaultdict(list)

    @property
    def is_class(self) -> bool:
        """Whether the scope's names are visible only in its own body."""
        return isinstance(self.node, ast.ClassDef)

    def bind(self, name: str, node: ast.AST) -> None:
        """Records that a node binds a name in this scope."""
        self.names.add(name)
        self.bindings[name].append(node)


class Scopes:
    """The scopes of a module. of: maps each node to the scope in which it is evaluated."""

    def __init__(self, tree: ast.Module):
        self.tree = tree
        self.module = Scope(tree, None, "")
        self.of: dict[ast.AST, Scope] = {tree: self.module}
        self.inner: dict[ast.AST, Scope] = {tree: self.module}
        self.classes: dict[str, ast.ClassDef] = {}
        self.functions: list[Function] = []
        for each in tree.body:
            self._visit(each, self.module)

    def lookup(self, name: str, scope: Scope | None) -> Scope | None:
        """Returns the scope that binds a name that is used in `scope`, or None for builtins."""
        own = scope
        while scope is not None:
            if name in scope.names and (scope is own or not scope.is_class):
                return scope
            scope = scope.parent
        return None

    def methods(self, name: str) -> Iterator[Function]:
        """Yields the methods of a class of the module."""
        for each in self.classes[name].body:
            if isinstance(each, FUNCTIONS):
                yield each

    def _visit(self, node: ast.AST, scope: Scope) -> None:
        self.of[node] = scope
        if isinstance(node, FUNCTIONS):
            self._function(node, scope)
        elif isinstance(node, ast.ClassDef):
            self._class(node, scope)
        else:
            for name in bound_names(node):
                target = self.module if self._is_global(name, scope) else scope
                target.bind(name, node)
            for child in ast.iter_child_nodes(node):
                self._visit(child, scope)

    def _function(self, node: Function, scope: Scope) -> None:
        scope.bind(node.name, node)
        self.functions.append(node)
        class_name = scope.node.name if isinstance(scope.node, ast.ClassDef) else scope.class_name
        inner = self.inner[node] = Scope(node, scope, class_name)
        for each in [*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)]:
            self._visit(each, scope)
        for argument in parameters(node):
            self.of[argument] = inner
            inner.bind(argument.arg, argument)
        self.of[node.args] = inner
        for statement in node.body:
            self._visit(statement, inner)

    def _class(self, node: ast.ClassDef, scope: Scope) -> None:
        scope.bind(node.name, node)
        self.classes[node.name] = node
        inner = self.inner[node] = Scope(node, scope, node.name)
        for each in [*node.decorator_list, *node.bases, *node.keywords]:
            self._visit(each, scope)
        for statement in node.body:
            self._visit(statement, inner)

    def _is_global(self, name: str, scope: Scope) -> bool:
        told = getattr(scope.node, "body", []) if scope is not self.module else []
        return any(isinstance(each, ast.Global) and name in each.names for each in told)


def parameters(node: Function | ast.Lambda) -> list[ast.arg]:
    """Returns all parameters of a function, including `*` and `**`."""
    args = node.args
    return [*args.posonlyargs, *args.args, *args.kwonlyargs, *filter(None, (args.vararg, args.kwarg))]


def bound_names(node: ast.AST) -> list[str]:
    """Returns the names to which a node itself gives a value."""
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        return [node.id]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [(each.asname or each.name).split(".")[0] for each in node.names if each.name != "*"]
    if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
        return [node.name]
    if isinstance(node, ast.MatchMapping) and node.rest:
        return [node.rest]
    if isinstance(node, ast.arg):
        return [node.arg]
    return []


def loads(node: ast.AST) -> dict[str, int]:
    """Returns how often each name is read in a node."""
    found: dict[str, int] = defaultdict(int)
    for each in ast.walk(node):
        if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Store):
            found[each.id] += 1
    return found


def root_name(node: ast.AST) -> str:
    """Returns the name at the start of an expression (`a` of `a.b[0].c`), or "" if there is none."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def flat_targets(target: ast.AST) -> Iterator[ast.AST]:
    """Yields each target of an assignment. Tuples and lists of targets are flattened."""
    if isinstance(target, ast.Tuple | ast.List):
        for each in target.elts:
            yield from flat_targets(each)
    elif isinstance(target, ast.Starred):
        yield from flat_targets(target.value)
    else:
        yield target


def is_literal(node: ast.AST) -> bool:
    """Returns whether an expression consists only of constants."""
    parts = (
        ast.Constant,
        ast.Tuple,
        ast.List,
        ast.Dict,
        ast.Set,
        ast.UnaryOp,
        ast.BinOp,
        ast.JoinedStr,
        ast.FormattedValue,
        ast.unaryop,
        ast.operator,
        ast.expr_context,
    )
    return all(isinstance(each, parts) for each in ast.walk(node))


def is_fixture(node: Function) -> bool:
    """Returns whether a function is decorated as a fixture."""
    return any("fixture" in ast.unparse(each) for each in node.decorator_list)


def fixture_name(node: Function) -> str:
    """Returns the name by which tests request a fixture: `name=` of its decorator, or the function's name."""
    for each in node.decorator_list if is_fixture(node) else []:
        for given in each.keywords if isinstance(each, ast.Call) else []:
            if given.arg == "name" and isinstance(given.value, ast.Constant):
                return str(given.value.value)
    return node.name


def own_name(node: ast.AST | None) -> str:
    """Returns the name that is called in `f(...)`, `self.f(...)` or `cls.f(...)`, or "" for other calls."""
    if isinstance(node, ast.Name):
        return node.id
    if (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in ("self", "cls")
    ):
        return node.attr
    return ""
