"""Block tables in steps: admission, sharing, copies before a write, and eviction; and how much they gain."""

from __future__ import annotations

from collections.abc import Sequence

from kvviz.device.kv_updates import BlockTable
from kvviz.errors import KvvizError
from kvviz.lessons.serving.paged_server import PARTS, WAYS, LoadRun
from kvviz.lessons.stepping import Cell, Frame, Group, Stepping
from kvviz.trace.units import count

# Events: what happens, to whom, and with how many rows or as whom. Write: one more row.
_EVENTS: tuple[tuple[str, str, str | int], ...] = (
    ("admit", "A", 6),
    ("admit", "B", 3),
    ("write", "A", 1),
    ("fork", "A", "C"),
    ("write", "C", 1),
    ("write", "A", 1),
    ("write", "A", 1),
    ("write", "C", 1),
    ("write", "B", 1),
    ("write", "B", 1),
    ("end", "A", 0),
    ("admit", "C", 9),
)


class BlockSteps:
    def __init__(self, blocks: int, size: int) -> None:
        self.table, self.size = BlockTable([], blocks, size), size
        self.names: list[str] = []  # by row of the table
        self.rows: dict[str, int] = {}  # of who is there, in the order in which they came
        self.touched: dict[tuple[int, int], str] = {}  # by this event: block and row in it
        self.frames: list[tuple[str, list[Cell], list[list[int]]]] = []

    def happen(self, what: str, name: str, more: str | int) -> None:
        if what not in ("admit", "fork", "write", "end") or (what != "admit") != (name in self.rows):
            raise KvvizError(f"{what!r} of {name!r}: admit who is not there; fork, write and end who is")
        self.touched, before = {}, list(self.rows)
        said = getattr(self, f"_{what}")(name, more)
        gone = [one for one in before if one not in self.rows and what != "end"]
        if gone:
            said = f"No block is free: {' and '.join(gone)}, which came last, is evicted and waits. {said}"
        self.frames.append((said, self._cells(), [list(row) for row in self.table.rows]))

    def _admit(self, name: str, rows: int) -> str:
        back = name in self.names
        if not back:
            self.names.append(name)
            self.table.rows.append([])
        self.rows[name] = 0
        for _ in range(rows):
            self._put(name)
        came = "comes back: its rows are computed again" if back else "is let in"
        return f"{name} {came}. {count(rows, 'row')} take {count(len(self._blocks(name)), 'block')}."

    def _fork(self, name: str, other: str) -> str:
        self.names.append(other)
        self.table.fork(self.names.index(name))
        self.rows[other] = self.rows[name]
        return f"{other} goes on from what {name} has: its table names the same blocks. Nothing is copied."

    def _write(self, name: str, rows: int) -> str:
        return " ".join(self._put(name) for _ in range(rows))

    def _end(self, name: str, rows: int) -> str:
        self._leave(name)
        return f"{name} is done. Blocks that no other table names are free."

    def _put(self, name: str) -> str:
        """Write one row: in a block of its own, after a copy if others share it."""
        at, said = self.rows[name], ""
        place = at % self.size
        if at // self.size == len(self._blocks(name)):
            self._room(name)
            self._blocks(name).append(self.table.free[0])
            said = f"{name} takes block {self._blocks(name)[-1]}."
        moved = self.table.own(self.names.index(name), at)
        if moved is not None:
            self.touched.update({(moved[1], row): "copied" for row in range(place)})
            said += f" Block {moved[0]} is shared: {name} gets a copy of it, block {moved[1]}, before it writes."
        block = self.table.block_of(self.names.index(name), at)
        self.touched[block, place] = "new"
        self.rows[name] += 1
        return f"{said} {name} writes row {at} in block {block}.".strip()

    def _room(self, name: str) -> None:
        """Evict the latest sequences until a block is free."""
        while not self.table.free:
            last = next((one for one in reversed(self.rows) if one != name), None)
            if last is None:
                raise KvvizError(f"{name} needs more blocks than there are, {self.table.blocks}")
            had = set(self._blocks(last))
            self._leave(last)
            self.touched.update(
                {(block, row): "lost" for block in had & set(self.table.free) for row in range(self.size)}
            )

    def _blocks(self, name: str) -> list[int]:
        return self.table.rows[self.names.index(name)]

    def _leave(self, name: str) -> None:
        self.table.rows[self.names.index(name)] = []
        del self.rows[name]

    def _cells(self) -> list[Cell]:
        """The rows of the pool: their owners and contents."""
        made = []
        for block in range(self.table.blocks):
            users = [name for name in self.rows if block in self._blocks(name)]
            starts = (self._blocks(name).index(block) * self.size for name in users)
            filled = max((self.rows[name] - start for name, start in zip(users, starts)), default=0)
            for row in range(self.size):
                held = ("shared" if len(users) > 1 else "held") if row < filled else "room" if users else ""
                text = "".join(users) if row < filled else ""
                made.append(Cell(self.touched.get((block, row), held), text=text))
        return made


def step_blocks(
    events: Sequence[tuple[str, str, str | int]] = _EVENTS, blocks: int = 6, block_size: int = 4
) -> Stepping:
    """A pool of blocks and the block tables over it, in steps.

    ``events``: ``("admit", "A", 6)``: A is admitted with 6 rows; ``("fork", "A", "C")``: C continues from A's rows;
    ``("write", "A", 1)``: one more row; ``("end", "A", 0)``. Shared blocks are copied before a write, and the latest
    sequence is evicted if no block is free, as in vLLM.

    Raises `KvvizError`: if an event makes no sense, or one sequence needs more than the whole pool.
    """
    pool = BlockSteps(blocks, block_size)
    for event in events:
        pool.happen(*event)
    width = max((len(table) for _, _, tables in pool.frames for table in tables), default=0)
    title = f"the pool: {blocks} blocks of {block_size} rows, each with its number"
    groups = [Group(title, "table", [""] * blocks * block_size, block_size)]
    groups += [Group(f"block table of {name}", "table", [""] * max(width, 1)) for name in pool.names]
    frames = []
    for said, rows, tables in pool.frames:
        cells = [rows]
        for at in range(len(pool.names)):
            own = tables[at] if at < len(tables) else []
            cells.append([Cell("held", text=str(block)) for block in own] + [Cell()] * (max(width, 1) - len(own)))
        frames.append(Frame(said, cells))
    legend = {"new": "written now", "copied": "copied before the write", "shared": "of several sequences"}
    legend |= {"held": "holds a row", "room": "taken, and still empty", "lost": "evicted"}
    return Stepping("Block tables, step by step", groups, frames, legend, seconds=2.0)


def step_load(runs: Sequence[LoadRun], frames: int = 24) -> Stepping:
    """The rows of a server under a load, in steps: their contents, by allocation scheme; then the mean.

    ``runs``: from `kvviz.lessons.serving.serve_load`, of one load. Raises `KvvizError`: if there are none, or they have
    fewer steps.
    """
    shortest = min((len(run.history) for run in runs), default=0)
    if not 0 < frames <= shortest:
        raise KvvizError(f"frames={frames}: the shortest run has {shortest} steps")
    looks = dict(zip(PARTS, ("new", "read", "copied", "lost", "room")))
    groups = []
    for run in runs:
        groups += [Group(WAYS[run.way], "bar", PARTS), Group("", "figures", [""])]
    made = []
    for number in range(frames + 1):
        at, cells, said = number * shortest // frames, list[list[Cell]](), []
        for run in runs:
            parts, running = run.history[min(at, shortest - 1)]
            shares, these = [part / run.rows for part in parts], f"{running}"
            if number == frames:
                shares, these = list(run.shares().values()), f"{run.at_once:.1f}"
            cells.append([Cell(looks[name], share) for name, share in zip(PARTS, shares)])
            cells.append([Cell(text=f"{shares[0]:.0%} of the rows hold tokens; {these} requests at once")])
            said.append(f"{run.way} {shares[0]:.0%}")
        when = "On average" if number == frames else f"After {at:,} steps"
        made.append(Frame(f"{when}, rows that hold tokens: {', '.join(said)}.", cells))
    return Stepping("What the rows of a server hold", groups, made, {looks[name]: name for name in PARTS}, seconds=0.5)
