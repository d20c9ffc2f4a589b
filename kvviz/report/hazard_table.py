"""The hazards of a trace as a tuple that is displayed as a table."""

from __future__ import annotations

from kvviz.errors import InputError
from kvviz.explain.hazards import Hazard, find_hazards
from kvviz.other_names import with_other_names
from kvviz.report.steps_table import Table
from kvviz.trace.model_or_trace import TraceLike, as_trace
from kvviz.trace.regions import LEVELS, Level

_COLUMNS = (
    ("kind", "kind", False, 6),
    ("state", "order", False, 8),
    ("first", "first", True, 9),
    ("second", "second", True, 9),
    ("bytes", "bytes", True, 12),
    ("value", "value", False, 36),
    ("sentence", "what happens", False, 240),
)


class Hazards(tuple[Hazard, ...]):
    """Hazards in the order of their second step, displayed as a table."""

    __slots__ = ()

    def table(self) -> Table:
        """The hazards as a table, one row for each pair."""
        return Table([{name: getattr(hazard, name) for name, *_ in _COLUMNS} for hazard in self], _COLUMNS)

    def __repr__(self) -> str:
        return repr(self.table()) if self else "no hazards"

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


@with_other_names
def hazards(trace: TraceLike, level: Level = "exact", ordered: bool = False, run: int | None = None) -> Hazards:
    """The hazards of a trace, or of one of its runs, in the order of the second step.

    Parameters
    ----------
    trace : Trace, or ggml.ComputeGraph, or any object with a ``trace``, or the path of a saved trace
        A graph is read as its list of nodes, whether it has been run or not.
    level : {"exact", "range", "root"}
        What counts as the same bytes: the bytes themselves, ranges from the first to the last byte of a value, or all
        of a storage.
    ordered : bool
        Include the pairs that a path of the graph keeps in order. Otherwise only the hidden and the broken pairs are
        returned.
    run : int, optional

    Raises
    ------
    InputError
        If there is no such level.

    Notes
    -----
    Runs are ordered by their caller. Two values that a pool put into the same storage one after the other are ordered
    by the pool, and are not a hazard. An ordered pair is left out if a write in between, from which the later access
    has its value, covers all bytes of one of the two: a chain of writes is listed pair by pair.

    Examples
    --------
    >>> [h.sentence for h in hazards(trace) if h.broken]                    # doctest: +SKIP
    ['ReduceSum reads past after TensorScatter has overwritten it: it does not see what the graph says']
    """
    if level not in LEVELS:
        raise InputError(f"there is no level {level!r}; choose one of {', '.join(LEVELS)}")
    return Hazards(find_hazards(as_trace(trace, "kvviz.hazards"), level, ordered, run))
