"""Steps of a trace as columns, read from the recorder's rows instead of `Step` records, for speed.

Invariant: the columns of a step agree with its `Step` record and with `explain.sentences`; a test compares them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

from kvviz.explain.sentences import (
    UNKNOWN,
    Facts,
    Grown,
    Out,
    ending_of,
    grown_by,
    in_weights,
    main_output,
    rule_of,
    sentence_of,
)
from kvviz.explain.summary import distinct
from kvviz.trace.blockers import Blocker, BlockerCode
from kvviz.trace.outcome import DECISIONS, OUTCOMES, endings
from kvviz.trace.reasons import decision_of
from kvviz.trace.recording import Trace
from kvviz.trace.schema.element_types import nbytes as size_of
from kvviz.trace.schema.events import HOW, Op
from kvviz.trace.units import dims
from kvviz.view.page_data.packed_columns import Columns, Strings
from kvviz.view.page_data.payload_graphs import GraphTable

FLAGS = (*DECISIONS, "control")
_BITS = {name: 1 << bit for bit, name in enumerate(FLAGS)}
# A payload has 31 bits for positions; an input beyond them that is taken over appears only in the sentence.
_LAST_POSITION = 31


class Values:
    def __init__(self, strings: Strings) -> None:
        self._strings = strings
        self._known: dict[tuple[Any, Any], tuple[int, int, str]] = {}

    def __call__(self, shape: Any, dtype: Any) -> tuple[int, int, str]:
        """The number of the text ``float32 [1,4]``, the bytes, and the shape alone as text."""
        key = (shape, dtype)
        found = self._known.get(key)
        if found is None:
            text = dims(shape)
            nbytes = size_of(shape, dtype)
            found = self._known[key] = (self._strings(f"{dtype} {text}".strip()), nbytes, text)
        return found


class StepColumns:
    """Collects steps one by one, and then writes them as columns. ``tables``: by ``id(graph)``. ``strings, values``:
    shared with the rest of the payload. ``number``: places of the frames that are sent, by their ids in the trace.
    ``shapes``: by ``id(node)``, the longest shape that its first output had."""

    def __init__(
        self,
        trace: Trace,
        tables: Mapping[int, GraphTable],
        strings: Strings,
        values: Values,
        number: Mapping[int, int],
    ) -> None:
        self.trace = trace
        self._number = number
        self.frames = trace.frames
        self._in_weights = in_weights(trace)
        self.strings = strings
        self.values = values
        self.shapes: dict[int, str] = {}
        self._tables = tables
        self._facts: dict[int, _Fact] = {}
        self._bodies: dict[tuple[int, int], list[Any]] = {}
        self._offsets: dict[tuple[int, str], int] = {}
        self._seen = 0
        self._marked = (0, 0, 0, 0)
        # Places of steps whose reasons came from the trace: encoded again, they may have other culprits.
        self._asked: list[int] = []
        self._steps: list[tuple] = []
        self._outs: list[tuple] = []
        self._blocks: list[tuple] = []
        self._freed: list[int] = []
        self._out_at, self._block_at, self._free_at = [0], [0], [0]

    def mark(self) -> None:
        self._marked = (len(self._steps), len(self._outs), len(self._blocks), len(self._freed))

    def rewind(self) -> int:
        """Discard what was added since the mark; returns the number of remaining steps."""
        steps, outs, blocks, freed = self._marked
        del self._steps[steps:], self._outs[outs:], self._blocks[blocks:], self._freed[freed:]
        for offsets in (self._out_at, self._block_at, self._free_at):
            del offsets[steps + 1 :]
        del self._asked[bisect_left(self._asked, steps) :]
        return steps

    def again(self, kept: Sequence[int]) -> bool:
        """Encode again the steps since the mark that may have changed: the last one, and those whose reasons came from
        the trace. Returns False if one of them takes a different number of entries than before. ``kept``: the steps by
        their places."""
        last, rows = len(self._steps) - 1, self.trace.log
        parts = ((self._outs, self._out_at), (self._blocks, self._block_at), (self._freed, self._free_at))
        for place in sorted({*self._asked[bisect_left(self._asked, self._marked[0]) :], last}):
            self.add(kept[place], rows[kept[place]])
            # It was encoded at the end, from where it moves to its place.
            self._steps[place] = self._steps.pop()
            del self._asked[bisect_left(self._asked, last + 1) :]
            for column, ends in parts:
                del ends[-1]
                fresh: list[Any] = column[ends[-1] :]
                del column[ends[-1] :]
                if place != last and len(fresh) != ends[place + 1] - ends[place]:
                    return False
                column[ends[place] : ends[place + 1]] = fresh
                ends[-1] = len(column)
        return True

    def _look_at_frames(self) -> None:
        for frame in self.frames[self._seen :]:
            if frame.parent is not None:
                self._bodies.setdefault((frame.parent, id(frame.node)), []).append(frame)
            self._offsets.update({(frame.id, b.name): b.offset for b in frame.bindings if b.offset})
        self._seen = len(self.frames)

    def add(self, index: int, row: Op) -> None:
        if row.frame >= self._seen:
            self._look_at_frames()
        frame_id, planned, taken, _, placed, freed, allocated, copied, written, live = row
        fact = self._facts.get(id(planned))
        if fact is None:
            fact = self._facts[id(planned)] = _Fact(planned, self._tables[id(self.frames[frame_id].graph)])
        outs = self._place(frame_id, fact, placed, taken)
        blockers = self._refuse(index, row, fact)
        source, grown, mask = "", UNKNOWN, 0
        if taken:
            mask = sum(1 << i for i in taken if i < _LAST_POSITION)
            source, grown = self._taken_over(index, row, outs)
        found = endings(self.trace, row)
        control = bool(planned.control)
        bodies = self._bodies.get((frame_id, fact.key), ()) if control else None
        spent = copied, written, allocated
        facts = Facts(fact.op, outs, blockers, source, *spent, planned.foreign, control, bodies, grown)
        sentence = sentence_of(facts)
        why = rule_of(facts) if self.trace.policy.decides else ""
        end = ending_of(facts, next(one for one in OUTCOMES if one in found))
        flags = sum(_BITS[name] for name in found) | (_BITS["control"] if control else 0)
        numbers = (self._number[frame_id], fact.number, flags, mask, live, allocated, copied, written)
        self._steps.append((*numbers, *map(self.strings, (sentence, why, planned.note, end))))
        later = self.trace.log.later
        # A storage that died in a run without steps is not freed by this step.
        self._freed += [storage for storage in freed if storage not in later] if later else freed
        self._out_at.append(len(self._outs))
        self._block_at.append(len(self._blocks))
        self._free_at.append(len(self._freed))

    def write(self, columns: Columns) -> None:
        fields = (
            "frame i, node i, flags i, taken i, live d, alloc d, copied d, written d, sentence i, rule i, note i, end i"
        )
        columns.rows("step", fields, self._steps)
        columns.ints("step.out", self._out_at)
        columns.rows("out", "value i, storage i, gen i, how i, offset d, bytes d, info i", self._outs)
        columns.ints("step.block", self._block_at)
        columns.rows("block", "code i, input i, culprit i, message i, bytes d", self._blocks)
        columns.ints("step.free", self._free_at)
        columns.ints("free.storage", self._freed)

    def storages(self) -> set[int]:
        return {out[1] for out in self._outs} | set(self._freed)

    def _place(self, frame_id: int, fact: _Fact, placed: tuple, taken: tuple[int, ...]) -> list[Out]:
        outs: list[Out] = []
        for (name, number), where in zip(fact.outputs, placed):
            if where is None:
                continue
            storage, generation, how, shape, dtype, offset, _ = where
            if offset is None:
                # Not recorded: it starts where the overwritten or viewed value starts.
                source = fact.planned.node.inputs[taken[0]] if taken else fact.first
                offset = self._offsets.get((frame_id, source), 0)
            if offset:
                self._offsets[frame_id, name] = offset
            info, nbytes, text = self.values(shape, dtype)
            if not outs and len(text) > fact.longest:
                fact.longest = len(text)
                self.shapes[fact.key] = text
            outs.append(Out(name, storage, generation, HOW[how], nbytes, shape, self._in_weights(storage)))
            self._outs.append((number, storage, generation, how, offset, nbytes, info))
        return outs

    def _refuse(self, index: int, row: Op, fact: _Fact) -> tuple[Blocker, ...]:
        """Add the blockers of a step. Asking the trace is slow, so it is asked only if necessary."""
        taken, masks, written = row.taken, row.masks, row.written
        if not masks:
            if taken or fact.planned.control or (fact.planned.views and not written):
                return ()
            if fact.cannot is not None:
                self._blocks.append((*fact.cannot, row.allocated))
                return ()
        strings = self.strings
        self._asked.append(len(self._steps))
        blockers = distinct(decision_of(self.trace, index).blockers)
        for b in blockers:
            blocker = (strings(b.code.value), b.position, strings(b.culprit), strings(b.message))
            self._blocks.append((*blocker, b.bytes))
            if b.code is BlockerCode.OP_CANNOT:
                # An op without an in-place form: the same in every run, except for the bytes.
                fact.cannot = blocker
        return blockers

    def _taken_over(self, index: int, row: Op, outs: Sequence[Out]) -> tuple[str, Grown]:
        """The input whose storage the main output took over, and what an append added."""
        if not outs:
            return "", UNKNOWN
        names = [row.op.node.inputs[i] for i in row.taken]
        main = main_output(outs)
        source = names[0]
        if len(names) > 1:
            source = (decision_of(self.trace, index).shares or {}).get(main.name) or source
        return source, grown_by(main, names, self.frames[row.frame].bindings)


class _Fact:
    __slots__ = ("cannot", "first", "key", "longest", "number", "op", "outputs", "planned")

    def __init__(self, planned: Any, table: GraphTable) -> None:
        node = planned.node
        self.planned = planned
        self.op = node.op_type
        self.first = node.inputs[0] if node.inputs else ""
        self.key = id(node)
        self.number = table.node_at[self.key]
        self.outputs = [(name, table.value(name)) for name in node.outputs]
        self.longest = 0
        self.cannot: tuple[int, int, int, int] | None = None
