"""Steps of a trace as columns: those of the log, and what is said of each step.

Invariant: the columns of a step agree with its `Step` record and with `explain.sentences`; a test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kvviz.explain.sentences import (
    UNKNOWN,
    Facts,
    Grown,
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
from kvviz.trace.recording import Trace, outs_of
from kvviz.trace.records import Placed
from kvviz.trace.schema.element_types import nbytes as size_of
from kvviz.trace.schema.events import Op
from kvviz.trace.schema.log import FREE, OP, OUT, Ints, Log
from kvviz.trace.schema.log import distinct as distinct_numbers
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


_Block = tuple[int, int, int, int, int]


class _Said(NamedTuple):
    """What is said of a step: numbers of texts, its blockers, and where its outputs begin, which the log may leave to
    follow from the inputs."""

    flags: int
    sentence: int
    rule: int
    note: int
    end: int
    blocks: tuple[_Block, ...]
    offsets: list[int]


class StepColumns:
    """The columns of the steps that are sent. What is said of a step is kept, once its run is finished.

    ``tables``: by ``id(graph)``.
    ``strings, values``: shared with the rest of the payload.
    ``number``: places of the frames that are sent, by their ids in the trace.
    ``shapes``: ``id(node)`` to the longest shape that its first output had; steps add to it.
    """

    def __init__(
        self,
        trace: Trace,
        tables: Mapping[int, GraphTable],
        strings: Strings,
        values: Values,
        number: Mapping[int, int],
        shapes: dict[int, str],
    ) -> None:
        self.trace = trace
        self.strings = strings
        self.values = values
        self._tables = tables
        self._number = number
        self._shapes = shapes
        self._in_weights = in_weights(trace)
        self._bodies: dict[tuple[int, int], list[Any]] = {}
        self._seen = 0
        self._said: dict[int, _Said] = {}
        # By op the one reason of those that have no in-place form: the same in every run, except for the bytes.
        self._cannot: dict[int, tuple[int, int, int, int]] = {}
        # Steps of the last run whose reasons came from the trace: said again, they may name other culprits.
        self._asked: list[int] = []
        self._used: tuple[Ints, Ints] = (np.zeros(0, np.int64), np.zeros(0, np.int64))

    def forget(self, first: int) -> None:
        """Discard what was said of a step and of all later ones, and the frames: some were dropped."""
        self._bodies, self._seen = {}, 0
        self._said = {step: said for step, said in self._said.items() if step < first}

    def storages(self) -> set[int]:
        """The storages that the steps place values in, or free."""
        return set(np.concatenate(self._used).tolist())

    def write(self, kept: Sequence[int], last: int, columns: Columns) -> None:
        """Add the columns of the steps ``kept``. ``last``: the first one of the last run."""
        log, steps = self.trace.log, np.array(kept, np.int64)
        for frame in self.trace.frames[self._seen :]:
            if frame.parent is not None:
                self._bodies.setdefault((frame.parent, id(frame.node)), []).append(frame)
        self._seen = len(self.trace.frames)
        for step in self._asked:
            self._said.pop(step, None)
        self._asked = []
        said = [self._said.get(step) or self._say(step, step >= last) for step in kept]
        (frames, nodes, refusals, *bytes_of, _), at, slot, outs = _of_steps(log, steps)
        storage, generation, how, _, form = outs
        masks = [sum(1 << i for i in taken if i < _LAST_POSITION) for taken, _ in log.refusals.entries]
        entries, node = distinct_numbers(nodes, len(log.nodes.entries))
        examples = np.zeros(len(entries), np.int64)
        examples[node] = frames
        numbers, starts = [], []
        values: list[int] = []
        for entry, frame in zip(entries.tolist(), examples.tolist()):
            table, ran = self._tables[id(log.frames[frame].program.graph)], log.nodes.entries[entry].node
            numbers.append(table.node_at[id(ran)])
            starts.append(len(values))
            values += map(table.value, ran.outputs)
        kinds, kind = distinct_numbers(form, len(log.forms.entries))
        infos = [self.values(*log.forms.entries[number][:2]) for number in kinds.tolist()]
        columns.ints("step.frame", map(self._number.__getitem__, frames.tolist()))
        columns.ints("step.node", _ints(numbers)[node])
        columns.ints("step.taken", _ints(masks)[refusals])
        for name, column in zip(("alloc", "copied", "written", "live"), bytes_of):
            columns.floats(f"step.{name}", column)
        columns.rows("step", "flags i, sentence i, rule i, note i, end i", [one[:5] for one in said])
        columns.ints("step.out", _ends(at, len(steps)))
        columns.ints("out.value", _ints(values)[_ints(starts)[node[at]] + slot])
        for name, column in (("storage", storage), ("gen", generation), ("how", how)):
            columns.ints(f"out.{name}", column)
        columns.floats("out.offset", [offset for one in said for offset in one.offsets])
        columns.floats("out.bytes", _ints([nbytes for _, nbytes, _ in infos])[kind])
        columns.ints("out.info", _ints([info for info, *_ in infos])[kind])
        columns.ints("step.block", np.cumsum([0, *(len(one.blocks) for one in said)]))
        columns.rows("block", "code i, input i, culprit i, message i, bytes d", [b for one in said for b in one.blocks])
        died, freed = np.array(log.frees, np.int64).reshape(-1, FREE).T
        # A storage that died in a run without steps is not freed by the step before it.
        there = np.isin(died, steps) & ~np.isin(freed, list(log.later))
        columns.ints("step.free", _ends(np.searchsorted(steps, died[there]), len(steps)))
        columns.ints("free.storage", freed[there])
        self._used = storage, freed[there]

    def _say(self, step: int, unfinished: bool) -> _Said:
        """What is said of a step; ``unfinished``: its reasons may be others later on."""
        row = self.trace.log[step]
        op, node = row.op, row.op.node
        outs = list(outs_of(self.trace, step))
        if outs and len(text := dims(outs[0].shape)) > len(self._shapes.get(id(node), "")):
            self._shapes[id(node)] = text
        blockers, blocks = self._refuse(step, row, unfinished)
        source, grown = self._taken_over(step, row, outs) if row.taken else ("", UNKNOWN)
        found = endings(self.trace, row)
        bodies = self._bodies.get((row.frame, id(node)), ()) if op.control else None
        spent = row.copied, row.written, row.allocated
        facts = Facts(node.op_type, outs, blockers, source, *spent, op.foreign, bool(op.control), bodies, grown)
        facts = facts._replace(weights=self._in_weights)
        why = rule_of(facts) if self.trace.policy.decides else ""
        end = ending_of(facts, next(one for one in OUTCOMES if one in found))
        flags = sum(_BITS[name] for name in (*found, *(("control",) if op.control else ())))
        texts = [self.strings(text) for text in (sentence_of(facts), why, op.note, end)]
        said = self._said[step] = _Said._make((flags, *texts, blocks, [out.offset for out in outs]))
        return said

    def _refuse(self, step: int, row: Op, unfinished: bool) -> tuple[Sequence[Blocker], tuple[_Block, ...]]:
        """The blockers of a step. Asking the trace is slow, so it is asked only if necessary."""
        if not row.masks:
            if row.taken or row.op.control or (row.op.views and not row.written):
                return (), ()
            if id(row.op) in self._cannot:
                return (), ((*self._cannot[id(row.op)], row.allocated),)
        if unfinished:
            self._asked.append(step)
        strings, blocks = self.strings, []
        blockers = distinct(decision_of(self.trace, step).blockers)
        for b in blockers:
            blocker = (strings(b.code.value), b.position, strings(b.culprit), strings(b.message))
            blocks.append((*blocker, b.bytes))
            if b.code is BlockerCode.OP_CANNOT:
                self._cannot[id(row.op)] = blocker
        return blockers, tuple(blocks)

    def _taken_over(self, step: int, row: Op, outs: Sequence[Placed]) -> tuple[str, Grown]:
        """The input whose storage the main output took over, and what an append added."""
        if not outs:
            return "", UNKNOWN
        names = [row.op.node.inputs[i] for i in row.taken]
        main = main_output(outs)
        source = names[0]
        if len(names) > 1:
            source = (decision_of(self.trace, step).shares or {}).get(main.name) or source
        return source, grown_by(main, names, self.trace.log.frames[row.frame].bindings)


def _of_steps(log: Log, steps: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """The columns of some ops; of their outputs that are there the place of the op among them, and which of its outputs
    it is; and the columns of these outputs."""
    log.settle()
    ops = np.frombuffer(log.ops, np.int64).reshape(-1, OP)
    begins = np.where(steps > 0, ops[steps - 1, -1], 0)
    counts = ops[steps, -1] - begins
    at = np.repeat(np.arange(len(steps)), counts)
    slot = np.arange(len(at)) - np.repeat(np.cumsum(counts) - counts, counts)
    outs = np.frombuffer(log.outs, np.int64).reshape(-1, OUT)[begins[at] + slot]
    there = outs[:, 0] >= 0
    return ops[steps].T, at[there], slot[there], outs[there].T


def _ends(at: Ints, count: int) -> Ints:
    """Where the entries of each of some steps begin and end, from the steps of all entries."""
    return np.cumsum(np.append(0, np.bincount(at, minlength=count)))


def _ints(numbers: Sequence[int]) -> Ints:
    return np.array(numbers, np.int64)
