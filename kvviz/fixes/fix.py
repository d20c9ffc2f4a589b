"""Fixes: changes that let a refused op run in place. Each is tried on ghosts before it is offered.

Changes for a kind of miss are searched once, for the first step that is asked for; a report asks for the most expensive
one first. The same miss in other runs and layers gets the same change. The effect of a change is measured on the whole
trace, or on a part of a long one, which the sentence names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kvviz.engine.sessions.recipe import Recipe
from kvviz.engine.sessions.replay import is_random
from kvviz.errors import KvvizError
from kvviz.fixes.changes import Change, Donate, Drop, GrowAfter, Reserve, RunFirst, Swap, arguments
from kvviz.fixes.fix_wording import KINDS, code_of, label_of, sentence_of
from kvviz.fixes.replays import Replays
from kvviz.fixes.trial import Effect, Where, effect_of, find_changes, place_of_step
from kvviz.graph.layers import Place, places
from kvviz.graph.model import Graph
from kvviz.trace.blockers import Blocker
from kvviz.trace.index.value_index import Index, index_of
from kvviz.trace.recording import Trace
from kvviz.trace.records import Branch
from kvviz.trace.trace_data import noted
from kvviz.trace.units import place_of, short, size


@dataclass(frozen=True, slots=True)
class Fix:
    """A change that lets an op run in place without changing any result.

    Attributes
    ----------
    kind : str
        ``"run_first"``, ``"donate"``, ``"by_value"``, ``"reserve"``, ``"capacity"``, ``"grow_after"``, ``"drop"``,
        ``"swap"``, ``"fix_dims"``, ``"policy"`` or ``"reorder"``: of the first change.
    label : str
        A few words.
    sentence : str
        What it does, what it saves, and what it makes worse.
    code : str
        The same change in the exporter or in the calling code: one to three lines of Python.
    changes : tuple of Change
    saves : int
        Bytes of new memory or copies that this step saves, less those that all others spend more.
    peak : int
        Bytes by which it lowers the peak of what was tried; negative if the peak is higher.
    """

    kind: str
    label: str
    sentence: str
    code: str
    changes: tuple[Change, ...]
    trace: Trace = field(repr=False, compare=False)
    picked: bool = field(default=False, repr=False)
    saves: int = field(default=0, compare=False)
    peak: int = field(default=0, compare=False)

    def apply(self) -> Any:
        """Run again with the change.

        Returns
        -------
        Trace
            Of the whole run or decode. For a trace loaded from a file, it is a dry run.

        Raises
        ------
        ReplayError
            If the inputs were not kept.
        KvvizError
            If a loaded trace cannot be replayed.
        """
        recipe: Recipe | None = self.trace.recipe
        if recipe is None:
            after = replays_of(index_of(self.trace), self.picked).whole(self.changes)
            after.title = f"{self.trace.title}, dry run"
        else:
            after = recipe.again(**arguments(self.trace, self.changes, self.picked, recipe.options["policy"]))
        after.branch = Branch(self.label, 0)
        return after


def fixer(trace: Trace, step: int, blocker: Blocker) -> Fix | None:
    """The fix that removes a blocker of a step, together with all others of its input; None if there is none."""
    return fix_for(index_of(trace), step, blocker.position) if blocker.position >= 0 else None


def fix_for(index: Index, step: int, position: int) -> Fix | None:
    """The fix that lets a step take over the input at ``position``."""
    if not is_repeatable(index, step) or index.trace.graph.spelled is not None:
        return None
    return noted(index.notes, ("fix", step, position), lambda: _find(index, step, position))


def replays_of(index: Index, picked: bool) -> Replays:
    """The replays of a trace, which cache their trials."""
    return noted(index.notes, ("replays", picked), lambda: Replays(index, picked))


def _find(index: Index, step: int, position: int) -> Fix | None:
    row, trace = index.rows[step], index.trace
    if not dict(row.masks).get(position, 0):
        return None
    try:
        picked = _is_picked(index, index.path(row.frame))
        replays = replays_of(index, picked)
    except KvvizError:
        return None
    place = place_of(trace, row)
    # Values that one iteration may take over may not be free in the next one.
    iterations = tuple(index.frames[frame].iteration for frame in index.path(row.frame))
    refused = row.op.node.op_type, position, row.masks, row.taken
    kind = place.role, iterations, refused, not index.frames[row.frame].run, picked
    tried: dict[Any, tuple[int, tuple[Change, ...] | None]] = index.notes.setdefault("tried", {})
    if kind in tried:
        first, changes = tried[kind]
        if changes is None:
            return None
        graph = index.frames[row.frame].program.graph
        moved = _in_layer(graph, changes, place_of(trace, index.rows[first]).layer, place.layer)
        fix = None if moved is None else _fix(index, step, position, moved, first, changes, replays)
        if fix is not None:
            return fix
    changes = find_changes(replays, step, position)
    tried.setdefault(kind, (step, changes))
    return None if changes is None else _fix(index, step, position, changes, step, changes, replays)


def _fix(
    index: Index,
    step: int,
    position: int,
    changes: tuple[Change, ...],
    like: int,
    tried: tuple[Change, ...],
    replays: Replays,
) -> Fix | None:
    """The fix of a step, by the effect of changes on it; None if they have none. ``like``: a step of the same kind, for
    which ``tried`` were found; in a long trace that is enough if both spend the same."""
    trace, row, node = index.trace, index.rows[step], index.rows[step].op.node
    other = index.rows[like]
    if replays.is_short or (row.allocated, row.copied) != (other.allocated, other.copied):
        like, tried = step, changes
    effect = effect_of(replays, index.frames[index.rows[like].frame].run, tried)
    where = place_of_step(trace, like)
    if effect is None or (effect.at(where), index.rows[like].op.node.inputs[position]) not in effect.takes:
        return None
    where = effect.at(where)
    saved, lost = effect.gain(where)
    text = sentence_of(trace.graph, changes, node, node.inputs[position], _appends(index, step, position), saved)
    text += _exchange(effect, where, saved, lost) + _stays(trace, changes) + _on_what(index, step, like, effect)
    return made_fix(trace, changes, text, saved - lost, -effect.peak, picked=replays.picked)


def made_fix(
    trace: Trace,
    changes: tuple[Change, ...],
    text: str,
    saves: int,
    peak: int = 0,
    *,
    kind: str = "",
    picked: bool = False,
) -> Fix:
    """The fix of some changes, with its label and its code; ``kind``: by default that of the first change."""
    label, code = label_of(trace.graph, changes), code_of(trace, changes, picked)
    return Fix(kind or KINDS[type(changes[0])], label, text, code, changes, trace, picked, saves, peak)


def _in_layer(
    graph: Graph, changes: tuple[Change, ...], layer: int | None, other: int | None
) -> tuple[Change, ...] | None:
    """Changes in one graph of a model, moved to another layer; None if something there has no counterpart."""
    if layer == other:
        return changes
    if layer is None or other is None:
        return None
    found = places(graph)
    nodes = {(place.layer, place.role): index for index, place in found.items()}
    try:
        return tuple(_moved(graph, change, found, nodes, layer, other) for change in changes)
    except KeyError:
        return None


def _moved(
    graph: Graph,
    change: Change,
    found: Mapping[int, Place],
    nodes: Mapping[tuple[int | None, str], int],
    layer: int,
    other: int,
) -> Change:
    def node(index: int) -> int:
        place = found[index]
        return index if place.layer is None else nodes[place.layer - layer + other, place.role]

    def given(name: str) -> str:
        readers = graph.consumers.get(name, ())
        for reader in readers:
            if found[reader.index].layer == layer and name in reader.inputs:
                return graph.by_index[node(reader.index)].inputs[reader.inputs.index(name)]
        if not readers or any(found[reader.index].layer is not None for reader in readers):
            raise KeyError(name)
        return name

    if isinstance(change, (RunFirst, Swap)):
        if change.graph != graph.path:
            raise KeyError(change.graph)
        if isinstance(change, RunFirst):
            return replace(change, reader=node(change.reader), node=node(change.node))
        return replace(change, node=node(change.node))
    if isinstance(change, (Donate, Reserve)):
        return replace(change, input=given(change.input))
    if isinstance(change, Drop):
        maker = graph.producers[change.output]
        if graph.path:
            raise KeyError(change.output)
        return replace(change, output=graph.by_index[node(maker.index)].outputs[maker.outputs.index(change.output)])
    return change


def _appends(index: Index, step: int, position: int) -> bool:
    """Whether the op would extend its past; if not, it writes into existing rows."""
    row = index.rows[step]
    grow = next((g for g in row.op.grows if g.input == position), None)
    if grow is None:
        return False
    past, present = index.places[row.frame, row.op.node.inputs[position]], row.outs[grow.output]
    return present is not None and past.shape != present.shape


def _exchange(effect: Effect, where: Where, saved: int, lost: int) -> str:
    text = ""
    worst = effect.worse(where)
    if worst is not None and (lost > 0 or min(effect.total) < 0):
        op_type, name, more = worst
        rest = f", and others {size(lost - more)}" if lost > more else ""
        text = f" In exchange {op_type} {short(name)} spends {size(more)} more{rest}."
        if lost >= saved:
            text += " Together they save nothing." if rest else " Together the two save nothing."
    if effect.moved > 0:
        text += f" The caller moves {size(effect.moved)} more between runs."
    if effect.peak > 0:
        text += f" The peak is {size(effect.peak)} higher."
    return text


def _stays(trace: Trace, changes: tuple[Change, ...]) -> str:
    """A text on an earlier ``kv_capacity``: with caches that move when full, it means fewer moves."""
    capacity = trace.options.kv_capacity
    if capacity is None or not any(isinstance(change, GrowAfter) for change in changes):
        return ""
    return f" kv_capacity={capacity} stays: a larger buffer then has at least so many rows, and is moved less often."


def _on_what(index: Index, step: int, like: int, effect: Effect) -> str:
    """A text on the part of a trace that it was tried on, if that is not all of it."""
    trace, runs = index.trace, effect.runs
    layer = place_of(trace, index.rows[like]).layer
    parts = [] if layer == place_of(trace, index.rows[step]).layer else [f"layer {layer}"]
    if len(runs) < len(trace.runs):
        parts.append(f"run {runs[0]}" if len(runs) == 1 else f"runs {runs[0]} to {runs[-1]}")
    return f" Tried on {', '.join(parts)}." if parts else ""


def is_repeatable(index: Index, step: int) -> bool:
    """Whether running the run of a step again would give the same results: it was finished, its inputs can have the
    same layouts, and the model draws no random numbers."""
    trace, run = index.trace, index.frames[index.rows[step].frame].run
    over = run + 1 < len(trace.runs) or (trace.live is None and not trace.interrupted)
    given = trace.options.given
    if not over or not (given is None or given.alike):
        return False
    return not noted(index.notes, "chance", lambda: any(map(is_random, index.kinds.examples)))


def _is_picked(index: Index, path: list[int]) -> bool:
    """Whether these frames ran in an order that a person chose; raises `KvvizError` if the orders differ."""
    planned = ([one.node.index for one in index.frames[frame].program.order] for frame in path)
    if all(index.steps.ran[frame].order == order for frame, order in zip(path, planned)):
        return False
    first = {frame.program.graph: number for number, frame in reversed(list(enumerate(index.frames)))}
    ran = index.steps.ran
    if any(ran[frame].order != ran[first[index.frames[frame].program.graph]].order for frame in path):
        raise KvvizError("the runs had different orders")
    return True
