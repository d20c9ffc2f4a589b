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
    """What some ops of a segment do to memory, counted from what was live before. ``key``: what it hangs on;
    ``capacities``: of new storages. ``lives``: after each op, and ``highest`` of them; ``end``: at the end. ``sums``:
    bytes allocated, copied, written by each op; ``totals``: by all."""

    key: tuple
    capacities: list[int]
    lives: np.ndarray
    highest: int
    end: int
    sums: np.ndarray
    totals: tuple[int, int, int]


class Template:
    """The columns of all ops of a segment in one log, as far as they are the same each time.

    ``ops``: node and refusal. ``outs``: storage (see `Out.ref`), generation, how, offset and form of each output.
    ``ends``: outputs up to each op. ``loose``: numbers and element types of outputs whose form is another each time.
    ``freed``: ops and what dies with them.
    """

    def __init__(self, ops: Sequence[Op], log: Log) -> None:
        self.tables, forms = (log.nodes, log.refusals, log.forms), log.forms
        known = log.nodes.numbers(op.record for op in ops), log.refusals.numbers((op.taken, op.masks) for op in ops)
        self.ops = np.array(known, np.int64).T
        self.ends = np.cumsum([len(op.outs) for op in ops])
        self.loose: list[list[tuple[int, object]]] = []
        outs: list[tuple[int, ...]] = []
        self.absent: list[int] = []
        for op in ops:
            varying: list[tuple[int, object]] = []
            for out in op.outs:
                if out is None:
                    self.absent.append(len(outs))
                    outs.append((0, 0, 0, 0, forms[None, None, None]))
                    continue
                shape, strides, offset = out.form
                if op.loose:
                    varying.append((len(outs), out.dtype))
                form = 0 if op.loose else forms[shape, out.dtype, strides]
                outs.append((out.ref, out.generation, out.how, -1 if offset is None else offset, form))
            if op.loose:
                self.loose.append(varying)
        self.outs = np.array(outs, np.int64).reshape(-1, 5)
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

    __slots__ = ("_bytes", "_facts", "_frame", "_lent", "_live", "_made", "_templates")

    def __init__(
        self, templates: Templates, frame: int, made: int, lent: list[Storage], facts: list, bytes: Bytes, live: int
    ) -> None:
        self._templates, self._frame, self._facts, self._bytes, self._live = templates, frame, facts, bytes, live
        self._made, self._lent = made, [(storage.id, storage.generation) for storage in lent]

    def __len__(self) -> int:
        return len(self._bytes.lives)

    def columns(self, log: Log) -> tuple[Ints, Ints, Ints]:
        """Ops, outputs, and what died as (op, storage), one row each. Outputs and ops are counted from these on."""
        template, forms, count, made = self._templates.of(log), log.forms, len(self), self._made
        lent = np.array([*self._lent, (0, 0)], np.int64)
        ends = template.ends[:count]
        outs = template.outs[: ends[-1]].copy()
        old = outs[:, 0] < 0
        owners = lent[~outs[old, 0]]
        outs[:, 0] += made
        outs[old, 0] = owners[:, 0]
        outs[old, 1] += owners[:, 1]
        places, varying = list[int](), list[tuple[int, int]]()
        for (found, *_), places_of in zip(self._facts, template.loose):
            given = [form for form in found if form is not None]
            for (place, dtype), (shape, strides, offset) in zip(places_of, given):
                places.append(place)
                varying.append((-1 if offset is None else offset, forms[shape, dtype, strides]))
        if places:
            outs[places, 3:] = varying
        absent = [place for place in template.absent if place < len(outs)]
        outs[absent, 0] = -1
        ops = np.empty((count, 8), np.int64)
        ops[:, 0], ops[:, 1:3], ops[:, 3:6] = self._frame, template.ops[:count], self._bytes.sums
        ops[:, 6], ops[:, 7] = self._bytes.lives + self._live, ends
        freed = template.freed[: np.searchsorted(template.freed[:, 0], count)].copy()
        old = freed[:, 1] < 0
        known = lent[~freed[old, 1], 0]
        freed[:, 1] += made
        freed[old, 1] = known
        return ops, outs, freed
