"""Fixes in words and in code: a label, a sentence, and Python for the exporter or the calling code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from kvviz.fixes.changes import (
    ByValue,
    Capacity,
    Change,
    Donate,
    Drop,
    FixDims,
    GrowAfter,
    Reorder,
    Reserve,
    RunFirst,
    Swap,
    UsePolicy,
    asked,
    changed_options,
)
from kvviz.graph.cache_pairs import control_inputs
from kvviz.graph.model import Graph, GraphPath, Node
from kvviz.runtimes.named_policies import NAMED, facts_of
from kvviz.trace.recording import Trace
from kvviz.trace.units import count, short, size

_IMPORTS = "import dataclasses; from kvviz.runtimes import schedules"

# By type of change: its kind, its label where it has one by itself, and its part of a sentence. In braces stand its
# fields: a name is cut, and rows are counted.
_WORDS: dict[type, tuple[str, str, str]] = {
    RunFirst: ("run_first", "", ""),
    Donate: ("donate", "", "let the run overwrite the input {input}"),
    ByValue: ("by_value", "capture by value", "let branches take over what nobody else needs"),
    Reserve: ("reserve", "", "put {input} into a buffer with room for {rows}"),
    Capacity: ("capacity", "kv_capacity={n}", "reserve {rows} in every growing cache before the first run"),
    GrowAfter: ("grow_after", 'growth="after"', "move a cache that is full into a larger buffer after the run"),
    Drop: ("drop", "", "do not ask for the output {output}"),
    Swap: ("swap", "swap the operands", "swap the operands"),
    FixDims: (
        "fix_dims",
        "fix the free dimensions",
        "write the lengths of this run into the free dimensions of {dims}",
    ),
    Reorder: ("reorder", "run in {name}", ""),
    UsePolicy: ("policy", 'policy="{name}"', "use the policy {name!r}"),
}
KINDS = {change: kind for change, (kind, *_) in _WORDS.items()}


def _words(change: Change, part: int) -> str:
    facts: dict[str, Any] = {field.name: getattr(change, field.name) for field in fields(change)}
    cut: dict[str, Any] = {name: short(facts[name]) for name in ("input", "output") if name in facts}
    if "rows" in facts:
        cut |= {"n": facts["rows"], "rows": count(facts["rows"], "row")}
    if "dims" in facts:
        cut["dims"] = _listed(list(dict.fromkeys(name for name, *_ in facts["dims"])))
    return _WORDS[type(change)][part].format(**{**facts, **cut})


def label_of(graph: Graph, changes: Sequence[Change]) -> str:
    """A few words: ``donate x``, ``run Neg first``, ``kv_capacity=64``."""
    parts = []
    firsts = [c for c in changes if isinstance(c, RunFirst)]
    if len(firsts) == 1:
        parts.append(f"run {_node(graph, firsts[0].graph, firsts[0].reader).op_type} first")
    elif firsts:
        parts.append(f"run {len(firsts)} readers first")
    reserved = [c.input for c in changes if isinstance(c, Reserve)]
    parts += [f"reserve {count(c.rows, 'row')} for {short(c.input, 32)}" for c in changes if isinstance(c, Reserve)]
    donated = [c.input for c in changes if isinstance(c, Donate)]
    if donated and donated == reserved:
        parts.append("donate it")
    elif donated:
        parts.append("donate " + _listed(donated))
    dropped = [c.output for c in changes if isinstance(c, Drop)]
    if dropped:
        parts.append(f"drop output {_listed(dropped)}")
    return " and ".join([*parts, *filter(None, (_words(change, 1) for change in changes))])


def sentence_of(graph: Graph, changes: Sequence[Change], node: Node, name: str, appends: bool, saved: int) -> str:
    clauses = []
    firsts = [c for c in changes if isinstance(c, RunFirst)]
    for change in firsts[:2]:
        first, second = _node(graph, change.graph, change.reader), _node(graph, change.graph, change.node)
        clauses.append(f"run {_called(first)} before {_called(second)}")
    if len(firsts) > 2:
        clauses.append(f"so too {count(len(firsts) - 2, 'other reader')}")
    clauses += [_words(change, 2) for change in changes if not isinstance(change, RunFirst)]
    text = "; ".join(clauses)
    does = f"appends to {short(name)}" if appends else f"works in the memory of {short(name)}"
    gain = f"saves {size(saved)}" if saved else "saves nothing"
    return f"{text[0].upper()}{text[1:]}: then {_called(node)} {does}, which {gain} at this step."


def code_of(trace: Trace, changes: Sequence[Change], picked: bool) -> str:
    """The change as Python: to the model file if the model must change, otherwise to the call. The code may use
    ``kvviz`` and the arguments of the call, ``graph``, ``inputs`` …, and, if these change, ``model`` (the file),
    ``trace``, and a ``policy`` without a name."""
    graph, base = trace.graph, _policy_name(trace)
    lines = []
    planned = [c for c in changes if isinstance(c, RunFirst)]
    ordered = picked or (bool(planned) and trace.policy.schedule != ("model",))
    if not ordered:
        moves: dict[tuple[GraphPath, int], list[int]] = {}
        for first in planned:
            moves.setdefault((first.graph, first.node), []).append(first.reader)
        for (where, node), readers in moves.items():
            moved = _moved(graph, where, node, readers)
            nodes = _nodes(graph, where)
            use = f"(nodes := {nodes})" if where else nodes
            again = "nodes" if where else nodes
            lines.append(f"for at, i in enumerate({moved}, {node}): {use}.insert(at, {again}.pop(i))")
    else:
        pairs = ", ".join(repr((c.graph, c.reader, c.node)) for c in planned)
        order = "schedules.Picks.of(trace)" if picked else f"{base}.schedule"
        schedule = f"schedules.Before({order}, ({pairs},))" if planned else order
        lines += [_IMPORTS, f"policy = dataclasses.replace({base}, schedule={schedule})"]
    for change in changes:
        if isinstance(change, Reorder):
            lines += [_IMPORTS, f"policy = dataclasses.replace({base}, schedule={change.code})"]
        elif isinstance(change, ByValue):
            captures = "captures=kvviz.policies.ideal.captures"
            lines += [_IMPORTS, f"policy = dataclasses.replace({'policy' if ordered else base}, {captures})"]
        elif isinstance(change, Swap):
            lines.append(
                f"node = {_nodes(graph, change.graph)}[{change.node}]; "
                "node.input[0], node.input[1] = node.input[1], node.input[0]"
            )
        elif isinstance(change, FixDims):
            lines.append(
                f"for name, axis, length in {list(change.dims)}: next(v for v in model.graph.input if v.name == name)"
                ".type.tensor_type.shape.dim[axis].dim_value = length"
            )
        elif isinstance(change, Reserve):
            past = f"inputs[{change.input!r}]"
            lines.append(f"{past} = kvviz.reserve({past}, axis={change.axis}, capacity={change.rows})")
    ordered = ordered or any(isinstance(change, (Reorder, ByValue)) for change in changes)
    call = _call(trace, changes, ordered)
    if call and any("model.graph" in line or "model.functions" in line for line in lines):
        lines.append("graph = kvviz.load(model)")
    return "\n".join(dict.fromkeys(lines + call))


def _call(trace: Trace, changes: Sequence[Change], ordered: bool) -> list[str]:
    options = changed_options(trace, changes)
    options.update(("policy", change.name) for change in changes if isinstance(change, UsePolicy))
    quoted = {name: f'"{value}"' if isinstance(value, str) else repr(value) for name, value in options.items()}
    changed = [f"{name}={text}" for name, text in quoted.items()]
    if ordered:
        changed.append("policy=policy")
    if not changed:
        return []
    changed += as_before(trace, {text.partition("=")[0] for text in changed})
    name, given = caller(trace)
    return [f"trace = kvviz.{name}({', '.join(['graph', *given, *changed])})"]


def caller(trace: Trace) -> tuple[str, list[str]]:
    """The function that makes such a trace, and its arguments after the graph."""
    options = trace.options
    if not options.dry:
        return options.kind, [{"run": "inputs", "decode": "prompt", "stream": "chunks"}[options.kind]]
    length = options.rows - (options.max_new_tokens or 0) + 1
    if options.kind != "decode":
        return "dry", []
    tokens = control_inputs(trace.graph)["tokens"]
    shape = next(bound.shape for bound in trace.frames[0].bindings if bound.name == tokens) or ()
    several = [f"batch={shape[0]}"] if len(shape) > 1 and shape[0] > 1 else []
    chunk = [f"chunk={options.chunk}"] if options.chunk else []
    return "dry", [f"prompt_tokens={length}", *several, *chunk]


def as_before(trace: Trace, changed: set[str]) -> list[str]:
    options, policy, name = trace.options, trace.policy, _policy_name(trace)
    kept = {"policy": {"policy": "policy", "kvviz.policies.ideal": "None"}.get(name, repr(policy.name))}
    if options.kind == "decode":
        kept = {
            "max_new_tokens": repr(options.max_new_tokens),
            **kept,
            "kv_capacity": repr(options.kv_capacity),
            "growth": repr(options.growth if options.growth != policy.growth else None),
            "cache": repr(options.cache if options.cache != "growing" else None),
            "tokenizer": "tokenizer" if options.tokenizer else "None",
        }
    elif trace.log.frames and asked(trace) != tuple(value.name for value in trace.graph.outputs):
        kept["outputs"] = repr(list(asked(trace)))
    kept["donate"] = repr(list(options.donate) or None)
    return [f"{name}={text}" for name, text in kept.items() if text != "None" and name not in changed]


def _policy_name(trace: Trace) -> str:
    policy = trace.policy
    named = policy.name in NAMED and policy == facts_of(NAMED[policy.name])
    return f"kvviz.policies.{policy.name}" if named else "policy"


def _called(node: Node) -> str:
    return f"{node.op_type} {short(node.name)}"


def _listed(names: Sequence[str]) -> str:
    text = ", ".join(short(name, 32) for name in names[:2])
    return text + (f" and {len(names) - 2} more" if len(names) > 2 else "")


def graph_at(graph: Graph, key: GraphPath) -> Graph:
    for index, attribute in key:
        node = graph.by_index[index]
        inner = node.function if attribute == "function" else node.subgraphs[attribute]
        assert inner is not None
        graph = inner
    return graph


def _node(graph: Graph, key: GraphPath, index: int) -> Node:
    return graph_at(graph, key).by_index[index]


def _moved(graph: Graph, key: GraphPath, node: int, readers: Sequence[int]) -> list[int]:
    """Indices of the readers and their predecessors that the model lists after a node."""
    inside = graph_at(graph, key)
    found: set[int] = set()
    stack = [inside.by_index[reader] for reader in readers]
    while stack:
        need = stack.pop()
        if need.index > node and need.index not in found:
            found.add(need.index)
            stack += [inside.producers[n] for n in (*need.inputs, *need.captures) if n in inside.producers]
    return sorted(found)


def _nodes(graph: Graph, key: GraphPath) -> str:
    text = "model.graph.node"
    for depth, (index, attribute) in enumerate(key):
        if attribute == "function":
            call = _node(graph, key[:depth], index)
            text = f"next(f for f in model.functions if f.name == {call.op_type!r}).node"
        else:
            text = f"next(a.g for a in {text}[{index}].attribute if a.name == {attribute!r}).node"
    return text
