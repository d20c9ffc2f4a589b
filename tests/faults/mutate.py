"""Small faults, found in the syntax tree and put into the text: all but the changed expression stays as it is."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_PAIRS = ((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot), (ast.In, ast.NotIn))
_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {**dict(_PAIRS), **{other: one for one, other in _PAIRS}}
_SWAPPED = ((ast.Add, ast.Sub), (ast.BitOr, ast.BitAnd), (ast.LShift, ast.RShift))
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    **dict(_SWAPPED),
    **{other: one for one, other in _SWAPPED},
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
}
_CONNECTIVES: dict[type[ast.boolop], type[ast.boolop]] = {ast.And: ast.Or, ast.Or: ast.And}

# Calls in which the order of arguments does not matter, or cannot be wrong without a crash on the first call.
_ANY_ORDER = {"max", "min", "isinstance", "np.may_share_memory", "np.shares_memory", "np.array_equal"}

# How often a kind is drawn: what is changed by the first ones runs on, and is seen only in what comes out.
_WEIGHTS = {"comparison": 4, "operator": 4, "constant": 4, "branch": 4, "not": 2, "argument": 2, "returned": 1}

Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Fault:
    """One small change of a file: ``text`` in place of the bytes of ``span``.

    ``function``: dotted name of the innermost function or class; ``before``, ``after``: the line without indent, lines
    that belong together joined; ``statement``: line and column of the innermost statement.
    """

    path: str
    function: str
    kind: str
    line: int
    span: tuple[int, int]
    text: str
    before: str
    after: str
    statement: Place

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What names this fault also after lines have moved."""
        return self.path, self.function, self.before, self.after


def faults_in(path: str, source: str) -> list[Fault]:
    """Every fault that can be put into a file, in the order of its text."""
    tree = ast.parse(source)
    data = source.encode()
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    for function, statement, parent in _places(tree, "", None):
        for kind, node, change in _changes(parent):
            assert isinstance(node, (ast.expr, ast.stmt)) and node.end_lineno and node.end_col_offset is not None
            first = starts[node.lineno - 1] + node.col_offset
            last = starts[node.end_lineno - 1] + node.end_col_offset
            text = change if isinstance(change, str) else f"({ast.unparse(change)})"
            ahead, behind = data[starts[node.lineno - 1] : first], data[last : starts[node.end_lineno]]
            before, after = (_one_line(ahead + inner + behind) for inner in (data[first:last], text.encode()))
            where = (statement.lineno, statement.col_offset)
            found.append(Fault(path, function, kind, node.lineno, (first, last), text, before, after, where))
    return sorted(found, key=lambda fault: fault.span)


def draw(found: Sequence[Fault], count: int, seed: int) -> list[Fault]:
    """Faults at random, each once; first the kind, so that the many of one kind do not crowd out the others."""
    rng = random.Random(seed)
    kinds: dict[str, list[Fault]] = {kind: [f for f in found if f.kind == kind] for kind in _WEIGHTS}
    for faults in kinds.values():
        rng.shuffle(faults)
    drawn: list[Fault] = []
    while len(drawn) < count and any(kinds.values()):
        open_kinds = [kind for kind, faults in kinds.items() if faults]
        kind = rng.choices(open_kinds, [_WEIGHTS[kind] for kind in open_kinds])[0]
        drawn.append(kinds[kind].pop())
    return drawn


def _one_line(text: bytes) -> str:
    return " ".join(text.decode().split())


def apply(source: str, fault: Fault) -> str:
    data = source.encode()
    return (data[: fault.span[0]] + fault.text.encode() + data[fault.span[1] :]).decode()


def _places(node: ast.AST, function: str, statement: ast.stmt | None) -> Iterator[tuple[str, ast.stmt, ast.AST]]:
    """Nodes that may be changed, each with the function and the statement that it is in."""
    if isinstance(node, (ast.Assert, ast.Raise, ast.Import, ast.ImportFrom, ast.JoinedStr)):
        # What is never wrong, what is only said, and (before Python 3.12) what has no place in the text.
        return
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    if isinstance(node, ast.stmt):
        statement = node
    if statement is not None:
        yield function, statement, node
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        function = f"{function}.{node.name}" if function else node.name
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "bases"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.keyword) and child.arg == "strict":
                continue
            if isinstance(child, ast.AST):
                yield from _places(child, function, statement)


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST, ast.AST | str]]:
    """What may be changed at a node: the kind of fault, what is replaced, and the new node or text."""
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            ops = [*node.ops[:place], _COMPARISONS[type(operator)](), *node.ops[place + 1 :]]
            yield "comparison", node, ast.Compare(node.left, ops, node.comparators)
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS and not _is_text(node):
        yield "operator", node, ast.BinOp(node.left, _OPERATORS[type(node.op)](), node.right)
    elif isinstance(node, ast.AugAssign) and type(node.op) in _OPERATORS:
        yield "operator", node, ast.unparse(ast.AugAssign(node.target, _OPERATORS[type(node.op)](), node.value))
    elif isinstance(node, ast.BoolOp):
        yield "operator", node, ast.BoolOp(_CONNECTIVES[type(node.op)](), node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        yield "not", node, node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, (bool, int)):
        yield "constant", node, repr(not node.value if isinstance(node.value, bool) else node.value + 1)
    elif isinstance(node, ast.Call) and ast.unparse(node.func) not in _ANY_ORDER:
        for place in range(len(node.args) - 1):
            first, second = node.args[place : place + 2]
            if not any(isinstance(one, ast.Starred) for one in (first, second)) and ast.dump(first) != ast.dump(second):
                args = [*node.args[:place], second, first, *node.args[place + 2 :]]
                yield "argument", node, ast.Call(node.func, args, node.keywords)
    elif isinstance(node, (ast.If, ast.IfExp)):
        yield "branch", node.test, "True"
        yield "branch", node.test, "False"
    elif isinstance(node, ast.comprehension):
        yield from (("branch", test, "True") for test in node.ifs)
    elif isinstance(node, ast.Return) and node.value is not None:
        if isinstance(node.value, ast.Tuple) and len(node.value.elts) > 1:
            first, second, *others = node.value.elts
            yield "returned", node, ast.unparse(ast.Return(ast.Tuple([second, first, *others], ast.Load())))
        elif not (isinstance(node.value, ast.Constant) and isinstance(node.value.value, (bool, type(None)))):
            yield "returned", node, "return None"


def _is_text(node: ast.BinOp) -> bool:
    sides = (node.left, node.right)
    return any(
        isinstance(s, ast.JoinedStr) or (isinstance(s, ast.Constant) and isinstance(s.value, str)) for s in sides
    )
