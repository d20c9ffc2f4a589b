"""Ops that a segment has run, as the log takes them: whole columns, from a template that a log makes once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from kvviz.engine.program.segment_code import Op, Out
from kvviz.trace.schema.log import Ints, Log

_ABSENT = Out(0, 0, 0, 0, None, (None, None, 0))


class Bytes(NamedTuple):
    """What some ops of a segment do to memory, counted from what was live before.

    ``key``: what it hangs on; ``capacities``: of new storages.
    ``curve``: bytes after each event of a storage, and ``upto``: the event up to which each op has allocated.
    ``highest, end``: of the curve.
    ``sums``: bytes allocated, copied, written by each op; ``totals``: by all.
    """

    key: tuple
    capacities: Ints
    curve: Ints
    upto: Ints
    highest: int
    end: int
    sums: Ints
    totals: list[int]


class Template:
    """The columns of all ops of a segment in one log, as far as they are the same each time.

    ``ops``: node and refusal.
    ``outs``: storage (see `Out.ref`), generation, how, offset and form of each output.
    ``ends``: outputs up to each op.
    ``varying, dtypes``: the outputs whose form is another each time.
    ``freed``: ops and what dies with them.
    """

    def __init__(self, ops: Sequence[Op], log: Log) -> None:
        forms = log.forms
        known = log.nodes.numbers(op.record for op in ops), log.refusals.numbers((op.taken, op.masks) for op in ops)
        self.ops = np.array(known, np.int64).T
        self.ends = np.cumsum([len(op.outs) for op in ops])
        outs = [(out or _ABSENT, op.loose and out is not None) for op in ops for out in op.outs]
        self.absent = np.array([at for at, (out, _) in enumerate(outs) if out is _ABSENT], np.int64)
        self.varying = [at for at, (_, loose) in enumerate(outs) if loose]
        self.dtypes = [out.dtype for out, loose in outs if loose]
        rows = []
        for out, loose in outs:
            shape, strides, offset = out.form
            form = 0 if loose else forms[shape, out.dtype, strides]
            rows.append((out.ref, out.generation, out.how, -1 if offset is None else offset, form))
        self.outs = np.array(rows, np.int64).reshape(-1, 5)
        freed = [(at, ref) for at, op in enumerate(ops) for ref in op.freed]
        self.freed = np.array(freed, np.int64).reshape(-1, 2)


Templates: TypeAlias = "WeakKeyDictionary[Log, Template]"


@dataclass(slots=True, eq=False)
class Done:
    """Ops of a segment that have run.

    ``templates``: of ``ops``, all of the segment's, by log.
    ``lent``: number and generation of storages from before; ``made``: number of the first new one.
    ``forms``: see `Facts`.
    ``live``: bytes alive before.
    """

    ops: Sequence[Op]
    templates: Templates
    frame: int
    made: int
    lent: list[tuple[int, int]]
    forms: list[Any]
    bytes: Bytes
    live: int

    def __len__(self) -> int:
        return len(self.bytes.upto)

    def columns(self, log: Log) -> tuple[Ints, Ints, Ints]:
        """Ops, outputs, and what died as (op, storage), one row each. Outputs and ops are counted from these on."""
        count, found = len(self), self.bytes
        template = self.templates.get(log) or self.templates.setdefault(log, Template(self.ops, log))
        # Numbers of storages by their references, which count from the end where they are from before.
        ids, generations = np.array([*self.lent, (0, 0)][::-1], np.int64).T
        ends = template.ends[:count]
        outs = template.outs[: ends[-1]].copy()
        refs = outs[:, 0]
        old = refs < 0
        outs[:, 1] += np.where(old, generations[np.minimum(refs, -1)], 0)
        outs[:, 0] = np.where(old, ids[np.minimum(refs, -1)], refs + self.made)
        outs[template.absent[: np.searchsorted(template.absent, len(outs))], 0] = -1
        if self.forms:
            varying = template.varying[: len(self.forms)]
            shapes, strides, outs[varying, 3] = zip(*self.forms)
            outs[varying, 4] = log.forms.numbers(zip(shapes, template.dtypes, strides))
        ops = np.empty((count, 8), np.int64)
        ops[:, 0], ops[:, 1:3], ops[:, 3:6] = self.frame, template.ops[:count], found.sums
        ops[:, 6], ops[:, 7] = found.curve[found.upto] + self.live, ends
        freed = template.freed[: np.searchsorted(template.freed[:, 0], count)].copy()
        refs = freed[:, 1]
        freed[:, 1] = np.where(refs < 0, ids[np.minimum(refs, -1)], refs + self.made)
        return ops, outs, freed
