"""Python source as it is read for settings: parsed, never imported, never run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perdure.audit import documents
from perdure.errors import InvalidArgument

FILES_MAX = 5_000
SKIPPED_FOLDERS = frozenset(
    {".git", ".venv", "venv", "node_modules", "__pycache__", "site-packages", "dist-packages"}
)
_REPEAT_MAX = 1_000

Function = ast.FunctionDef | ast.AsyncFunctionDef


class UnknownValueError(Exception):
    """An expression whose value only running the code would show."""


class Source:
    """One module: its tree, what its names stand for, and its constants."""

    def __init__(self, text: str, file: str) -> None:
        self.file = file
        try:
            self.tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError) as problem:
            line = getattr(problem, "lineno", None) or 1
            raise InvalidArgument(f"{file}:{line}: this is no Python: {problem}") from None
        self._index()

    @classmethod
    def of_tree(cls, tree: ast.Module, file: str) -> Source:
        """Some statements of a module that is parsed already."""
        made = cls.__new__(cls)
        made.file, made.tree = file, tree
        made._index()
        return made

    def _index(self) -> None:
        self._names: dict[str, str] = {}
        self._constants: dict[str, ast.expr | None] = {}
        self.owners: dict[ast.AST, str] = {}
        self._read(self.tree, "")

    def _read(self, node: ast.AST, owner: str) -> None:
        for child in ast.iter_child_nodes(node):
            self.owners[child] = owner
            inner = owner
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = f"{owner}.{child.name}".lstrip(".")
                for decorator in child.decorator_list:
                    self.owners[decorator] = inner
            elif isinstance(child, ast.Import):
                for alias in child.names:
                    target = alias.name if alias.asname else alias.name.partition(".")[0]
                    self._names[alias.asname or target] = target
            elif isinstance(child, ast.ImportFrom):
                prefix = "." * child.level + (child.module or "")
                for alias in child.names:
                    self._names[alias.asname or alias.name] = f"{prefix}.{alias.name}"
            elif not owner:
                self._note_constant(child)
            self._read(child, inner)

    def _note_constant(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            target, value = node.target, node.value
        else:
            return
        if isinstance(target, ast.Name):
            # A name that is bound twice has no one value.
            known = target.id in self._constants
            self._constants[target.id] = None if known else value

    def owner(self, node: ast.AST) -> str:
        """The qualified name of the function or class around a node, "" at the top."""
        return self.owners.get(node, "")

    def dotted(self, node: ast.AST) -> str:
        """The full name that an expression stands for: "tenacity.retry"; "" if it is none."""
        if isinstance(node, ast.Name):
            return self._names.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            before = self.dotted(node.value)
            return f"{before}.{node.attr}" if before else ""
        return ""

    def assigned(self, name: str) -> ast.expr | None:
        """The one expression that a module-level name is bound to, None if there is none."""
        return self._constants.get(name)

    def resolved(self, node: ast.expr) -> ast.expr:
        """What a name is bound to at module level, the node itself otherwise."""
        seen = set()
        while isinstance(node, ast.Name) and node.id not in seen:
            seen.add(node.id)
            bound = self._constants.get(node.id)
            if bound is None:
                break
            node = bound
        return node

    def calls(self, *names: str) -> Iterator[ast.Call]:
        """Every call of something whose full name is, or ends like, one of these."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and matches(self.dotted(node.func), names):
                yield node

    def functions(self) -> Iterator[Function]:
        """Every function, methods included."""
        for node in ast.walk(self.tree):
            if isinstance(node, Function):
                yield node

    def value(self, node: ast.AST) -> Any:
        """The value of an expression of constants. UnknownValueError if it needs to be run."""
        return _Evaluation(self).value(node)

    def items(self, nodes: list[ast.expr]) -> list[ast.expr]:
        """Expressions of a list, repeats written as `*[x for _ in range(3)]` multiplied out."""
        found: list[ast.expr] = []
        for node in nodes:
            found += self._expanded(node.value) if isinstance(node, ast.Starred) else [node]
        return found

    def _expanded(self, node: ast.expr) -> list[ast.expr]:
        node = self.resolved(node)
        if isinstance(node, (ast.List, ast.Tuple)):
            return self.items(node.elts)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self._expanded(node.left) + self._expanded(node.right)
        if isinstance(node, ast.ListComp) and len(node.generators) == 1:
            each = node.generators[0]
            if isinstance(each.iter, ast.Call) and self.dotted(each.iter.func) == "range":
                counts = [self.value(argument) for argument in each.iter.args]
                repeats = len(range(*counts))
                if not each.ifs and repeats <= _REPEAT_MAX:
                    return [node.elt] * repeats
        raise UnknownValueError


class _Evaluation:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._open: set[str] = set()

    def value(self, node: ast.AST) -> Any:
        match node:
            case ast.Constant():
                return node.value
            case ast.List() | ast.Tuple() | ast.Set():
                return [self.value(each) for each in node.elts]
            case ast.Dict():
                return self._dict(node)
            case ast.UnaryOp(op=ast.USub()):
                return -self._number(node.operand)
            case ast.BinOp():
                return self._arithmetic(node)
            case ast.Name():
                return self._name(node)
            case ast.Call():
                return self._call(node)
            case _:
                raise UnknownValueError

    def _dict(self, node: ast.Dict) -> dict[Any, Any]:
        if any(key is None for key in node.keys):
            raise UnknownValueError
        return {
            self.value(key): self.value(each)
            for key, each in zip(node.keys, node.values, strict=True)
            if key is not None
        }

    def _number(self, node: ast.AST) -> Any:
        value = self.value(node)
        if isinstance(value, (int, float)):
            return value
        raise UnknownValueError

    def _arithmetic(self, node: ast.BinOp) -> Any:
        left, right = self._number(node.left), self._number(node.right)
        try:
            match node.op:
                case ast.Add():
                    return left + right
                case ast.Sub():
                    return left - right
                case ast.Mult():
                    return left * right
                case ast.Div():
                    return left / right
                case _:
                    raise UnknownValueError
        except (ZeroDivisionError, OverflowError):
            raise UnknownValueError from None

    def _name(self, node: ast.Name) -> Any:
        bound = self._source.assigned(node.id)
        if bound is None or node.id in self._open:
            raise UnknownValueError
        self._open.add(node.id)
        found = self.value(bound)
        self._open.discard(node.id)
        return found

    def _call(self, node: ast.Call) -> Any:
        """Calls that only write a value: timedelta(…) in seconds, ms(…), frozenset([…])."""
        name = self._source.dotted(node.func)
        if name in ("frozenset", "set", "tuple", "list") and not node.keywords:
            return self.value(node.args[0]) if node.args else []
        amounts = {each.arg: self._number(each.value) for each in node.keywords if each.arg}
        units = {"milliseconds": 1e-3, "seconds": 1.0, "minutes": 60.0, "hours": 3600.0}
        units |= {"days": 86_400.0, "weeks": 604_800.0, "microseconds": 1e-6}
        if node.args or not amounts or not amounts.keys() <= units.keys():
            raise UnknownValueError
        seconds = sum(amount * units[unit] for unit, amount in amounts.items())
        if matches(name, ("datetime.timedelta", "timedelta")):
            return seconds
        if matches(name, ("perdure.ms", "perdure.policy.ms")):
            return round(seconds * 1000)
        raise UnknownValueError


def matches(dotted: str, names: tuple[str, ...]) -> bool:
    """Whether a full name is one of these, or ends with one of them after a dot."""
    return any(dotted == name or dotted.endswith(f".{name}") for name in names)


def arguments(call: ast.Call, order: tuple[str, ...] = ()) -> dict[str, ast.expr]:
    """The arguments of a call by name; positional ones take their names from `order`.

    UnknownValueError where `*` or `**` hides some.
    """
    if any(isinstance(each, ast.Starred) for each in call.args):
        raise UnknownValueError
    found = dict(zip(order, call.args, strict=False))
    for each in call.keywords:
        if each.arg is None:
            raise UnknownValueError
        found[each.arg] = each.value
    return found


def read(file: str) -> list[Source]:
    """The module in `file`, or every module below it if it is a folder.

    In a folder, files that are no Python of this version are left out.
    """
    path = Path(file)
    if file == documents.STANDARD_INPUT or not path.is_dir():
        return [Source(documents.read_text(file), documents.shown(file))]
    found = []
    for each in sorted(path.rglob("*.py"))[:FILES_MAX]:
        if SKIPPED_FOLDERS & set(each.parts):
            continue
        try:
            found.append(Source(each.read_text(encoding="utf-8"), str(each)))
        except (InvalidArgument, UnicodeDecodeError, OSError):
            continue
    if not found:
        raise InvalidArgument(f"{file}: no Python source in it")
    return found
