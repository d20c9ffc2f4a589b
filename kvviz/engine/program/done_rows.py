"""Ops that a segment has run, as the log takes them: whole columns, from a template that a log makes once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from kvviz.engine.program.segment_code import Op
from kvviz.memory.storage import Storage
from kvviz.trace.schema.log import Ints, Log


class Bytes(NamedTuple):
    """What some ops of a segment do to memory, counted from what was live before.

    ``key``: what it hangs on; ``capacities``: of new storages. ``curve``: bytes after each event of a storage, and
    ``upto``: the event up to which each op has allocated. ``highest, end``: of the curve. ``sums``: bytes allocated,
    copied, written by each op; ``totals``: by all.
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

    ``ops``: node and refusal. ``outs``: storage (see `Out.ref`), generation, how, offset and form of each output.
    ``ends``: outputs up to each op. ``varying, dtypes``: the outputs whose form is another each time.
    ``freed``: ops and what dies with them.
    """

    def __init__(self, ops: Sequence[Op], log: Log) -> None:
        self.tables, forms = (log.nodes, log.refusals, log.forms), log.forms
        known = log.nodes.numbers(op.record for op in ops), log.refusals.numbers((op.taken, op.masks) for op in ops)
        self.ops = np.array(known, np.int64).T
        self.ends = np.cumsum([len(op.outs) for op in ops])
        outs = [(out, op.loose) for op in ops for out in op.outs]
        self.absent = np.array([at for at, (out, _) in enumerate(outs) if out is None], np.int64)
        self.varying = [at for at, (out, loose) in enumerate(outs) if loose and out is not None]
        self.dtypes = [out.dtype for out, loose in outs if loose and out is not None]
        rows = []
        for out, loose in outs:
            shape, strides, offset = out.form if out is not None and not loose else (None, None, 0)
            form = 0 if loose and out is not None else forms[shape, None if out is None else out.dtype, strides]
            first = (0, 0, 0) if out is None else (out.ref, out.generation, out.how)
            rows.append((*first, -1 if offset is None else offset, form))
        self.outs = np.array(rows, np.int64).reshape(-1, 5)
        freed = [(at, ref) for at, op in enumerate(ops) for ref in op.freed]
        self.freed = np.array(freed, np.int64).reshape(-1, 2)


class Templates:
    """The ops of a segment, and their template in each log."""

    def __init__(self, ops: Sequence[Op]) -> None:
        self._ops = ops
        self._made: WeakKeyDictionary[Log, Template] = WeakKeyDictionary()

    def of(self, log: Log) -> Template:
        """That in a log, as its tables are now."""
        found = self._made.get(log)
        if found is None or any(a is not b for a, b in zip(found.tables, (log.nodes, log.refusals, log.forms))):
            found = self._made[log] = Template(self._ops, log)
        return found


class Done:
    """Ops of a segment that have run."""

    __slots__ = ("_bytes", "_forms", "_frame", "_lent", "_live", "_made", "_templates")

    def __init__(
        self, templates: Templates, frame: int, made: int, lent: list[Storage], forms: list, bytes: Bytes, live: int
    ) -> None:
        self._templates, self._frame, self._forms, self._bytes, self._live = templates, frame, forms, bytes, live
        self._made, self._lent = made, [(storage.id, storage.generation) for storage in lent]

    def __len__(self) -> int:
        return len(self._bytes.upto)

    def columns(self, log: Log) -> tuple[Ints, Ints, Ints]:
        """Ops, outputs, and what died as (op, storage), one row each. Outputs and ops are counted from these on."""
        template, count, found = self._templates.of(log), len(self), self._bytes
        # Numbers of storages by their references, which count from the end where they are from before.
        ids, generations = np.array([*self._lent, (0, 0)][::-1], np.int64).T
        ends = template.ends[:count]
        outs = template.outs[: ends[-1]].copy()
        refs = outs[:, 0]
        old = refs < 0
        outs[:, 1] += np.where(old, generations[np.minimum(refs, -1)], 0)
        outs[:, 0] = np.where(old, ids[np.minimum(refs, -1)], refs + self._made)
        outs[template.absent[: np.searchsorted(template.absent, len(outs))], 0] = -1
        if self._forms:
            varying = template.varying[: len(self._forms)]
            shapes, strides, outs[varying, 3] = zip(*self._forms)
            outs[varying, 4] = log.forms.numbers(zip(shapes, template.dtypes, strides))
        ops = np.empty((count, 8), np.int64)
        ops[:, 0], ops[:, 1:3], ops[:, 3:6] = self._frame, template.ops[:count], found.sums
        ops[:, 6], ops[:, 7] = found.curve[found.upto] + self._live, ends
        freed = template.freed[: np.searchsorted(template.freed[:, 0], count)].copy()
        refs = freed[:, 1]
        freed[:, 1] = np.where(refs < 0, ids[np.minimum(refs, -1)], refs + self._made)
        return ops, outs, freed
