"""rten's planner: a walk backward from the outputs, then a forward pass that first runs ops that cannot run in place.

Source: ``src/graph/planner.rs`` and the model loader of rten at commit c7f7bad9. Sizes, owners and reuse play no part;
whether an op "can run in place" is a property of its operator alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvviz.graph.model import Graph, Node
from kvviz.runtimes.frontier import Log, PlanningEvent, descend, first_output, forward, makers, reads

# Which inputs operators declare as in-place inputs, and which of them are commutative.
MICROSOFT = "com.microsoft"

_UNARY = (
    "Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid HardSwish "
    "LeakyRelu Log Mish Neg Not Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Swish "
    "Tan Tanh ThresholdedRelu"
)
_ARITHMETIC = ("Add", "Mul", "Sub", "Div", "Pow", "Clip")
_NORMALIZATION = ("Softmax", "LogSoftmax", "BatchNormalization", "InstanceNormalization", "LpNormalization")
_LAYOUT = (
    "Identity Cast CastLike Reshape Flatten Squeeze Unsqueeze Expand Slice Resize Tile Concat "
    "SequenceInsert SequenceErase"
)

_TABLE: dict[tuple[str, str], tuple[int, ...]] = {
    **{("", name): (0,) for name in (*_UNARY.split(), *_ARITHMETIC, *_NORMALIZATION, *_LAYOUT.split())},
    ("", "Attention"): (4, 5),
    (MICROSOFT, "Gelu"): (0,),
    (MICROSOFT, "QuickGelu"): (0,),
    (MICROSOFT, "MultiHeadAttention"): (6, 7),
    (MICROSOFT, "GroupQueryAttention"): (3, 4),
}
_COMMUTATIVE = {"Add", "Mul", "And", "Or", "Xor", "Equal"}


def in_place_inputs(node: Node) -> tuple[int, ...]:
    return _TABLE.get((node.domain, node.op_type), ())


def is_commutative(node: Node) -> bool:
    """Whether rten may use the larger operand instead of the declared one."""
    return node.domain == "" and node.op_type in _COMMUTATIVE


QUIRKS = {
    "greedy_order": "the planner runs ops that can run in place by kind in the order in which they became ready, "
    "although another one could overwrite its input now",
    "cached_plan": "a plan is kept for the set of outputs: a run that asks for them in another order gets "
    "the plan made for the first one",
    "one_operand": "of a commutative op only the operand with the most elements is tried, the last one on ties; "
    "a captured value counts as empty",
    "sticky_count": "uses are counted in a byte, and 255 is never counted down: such a value is never overwritten",
    "counted_twice": "a value that several bodies of an op name is counted once for each, so they borrow it",
    "one_level": "a captured value is handed over to the next body only, not to a body inside it",
    "kept_captures": "a value that was handed over to a body stays until the end of that body, whoever read it last",
    "unread_outputs": "an output that nobody reads stays until the end of the run",
    "loop_copies": "a value that is handed over to a Loop is copied for every iteration",
}


def rten(graph: Graph, nodes: Sequence[Node], outputs: Sequence[str], log: Log | None = None) -> Sequence[Node]:
    """The order in which rten runs the needed nodes of a graph. ``outputs``: in the requested order, which may change
    the plan. ``log``: called with every visit of the walk and every pick."""
    if graph.spelled is not None:
        return graph.nodes
    walked = walk(graph, nodes, outputs, log)
    waits = {node.index for node in walked if in_place_inputs(node)}

    def why(frontier: Sequence[Node], position: int) -> str:
        op = frontier[position].op_type
        if len(frontier) == 1:
            return f"{op} is the only op that can run"
        if frontier[position].index in waits:
            return f"all {len(frontier)} ops of the frontier can run in place by kind: {op} is the oldest"
        reason = f"{op} is the first op of the frontier that cannot run in place by kind"
        if position:
            reason += (
                f"; the {position} before it can, and wait" if position > 1 else "; the one before it can, and waits"
            )
        return reason

    return forward(walked, lambda node: node.index in waits, why, log)


def walk(graph: Graph, nodes: Sequence[Node], outputs: Sequence[str], log: Log | None = None) -> list[Node]:
    """The first half: backward from each output, depth first; an op is appended when its inputs are resolved."""
    made_by = makers(nodes)
    listed: dict[int, Node] = {}
    fed = {value.name for value in graph.inputs}

    def resolved(name: str) -> str:
        """Why a value needs no visit, or an empty string."""
        if name in fed:
            return f"{name} is an input of the graph"
        maker = made_by.get(name)
        if maker is not None:
            return f"{maker.op_type} makes {name}, and is in the list already" if maker.index in listed else ""
        return f"{name} is a weight" if name in graph.weights else f"{name} comes from outside this graph"

    def say(node: Node | None, value: str, action: str, reason: str, depth: int) -> None:
        if log:
            log(PlanningEvent("walk", node, value, action, reason, (), len(listed), depth))

    def unresolved(node: Node, depth: int) -> Iterator[Node]:
        for name in dependencies(node):
            if known := resolved(name):
                say(node, name, "skip", known, depth)
            else:
                say(made_by[name], name, "visit", f"{node.op_type} needs {name}", depth)
                yield made_by[name]

    for output in outputs:
        known = resolved(output)
        if known:
            say(None, output, "skip", f"nothing to do for the output: {known}", 0)
            continue
        say(made_by[output], output, "visit", f"{output} is wanted as an output", 0)
        for node, depth in descend(made_by[output], unresolved):
            listed[node.index] = node
            say(node, first_output(node), "append", f"all that {node.op_type} needs is resolved", depth)
    return list(listed.values())


def dependencies(node: Node) -> list[str]:
    """A node's reads in rten's order: inputs (repeated ones too), then captures of its bodies."""
    inputs = [name for name in node.inputs if name]
    captured = dict.fromkeys((*_captured(node), *node.captures))
    return inputs + [name for name in captured if name not in node.inputs]


def _captured(node: Node) -> Iterator[str]:
    """Captures of a node's bodies, body by body, each body's own before those of inner bodies."""
    # An If has its branches in this order, whatever the order of its attributes in the file.
    bodies = sorted(node.subgraphs.items(), key=lambda item: item[0] == "else_branch")
    for _, body in bodies:
        inner = sorted(body.nodes, key=lambda n: n.index)
        free = set(body.captures)
        yield from (name for n in inner for name in n.inputs if name in free)
        for n in inner:
            yield from (name for name in _captured(n) if name in free)


# rten's planner with one quirk corrected: of ops that could run in place by kind, one goes first that can do so now.


_WHY = (
    "it cannot run in place by kind",
    "it is the last reader of what it may overwrite",
    "none can overwrite its input now: it is the oldest",
)


def look_ahead(graph: Graph, nodes: Sequence[Node], outputs: Sequence[str], log: Log | None = None) -> Sequence[Node]:
    if graph.spelled is not None:
        return graph.nodes
    walked = walk(graph, nodes, outputs, log)
    waiting: dict[str, set[int]] = {}
    for node in walked:
        for name in reads(node):
            waiting.setdefault(name, set()).add(node.index)
    by_index = {node.index: node for node in walked}
    kept = {*outputs, *graph.weights}

    def is_free(node: Node) -> bool:
        positions = range(len(node.inputs)) if is_commutative(node) else in_place_inputs(node)
        names = [node.inputs[i] for i in positions if i < len(node.inputs) and node.inputs[i] not in kept]
        return any(name and waiting[name] == {node.index} and node.inputs.count(name) == 1 for name in names)

    def rank(node: Node) -> int:
        return 0 if not in_place_inputs(node) else 1 if is_free(node) else 2

    def changed(node: Node) -> Iterator[Node]:
        for name in reads(node):
            waiting[name].discard(node.index)
            if len(waiting[name]) == 1:
                yield by_index[next(iter(waiting[name]))]

    def why(frontier: Sequence[Node], position: int) -> str:
        node = frontier[position]
        return f"{node.op_type}: {_WHY[rank(node)]}"

    return forward(walked, rank, why, log, changed)
