"""What is known of a pair of steps on the same bytes, and how such pairs show themselves."""

from __future__ import annotations

from dataclasses import dataclass

from kvviz.late import late
from kvviz.trace.regions import Level


@dataclass(frozen=True, slots=True)
class Hazard:
    """A pair of steps of one run that touch the same bytes, one of them writing.

    Attributes
    ----------
    kind : str
        By the order that is required. ``"RAW"``: one step must read what the other wrote. ``"WAR"``: one must read
        before the other overwrites what it reads. ``"WAW"``: both write, and it matters whose bytes stay.
    first, second : int
        Steps, in the order in which they ran.
    storage : int
    root : str
        Name of the value that the storage was made for.
    value : str
        The value whose bytes they share: the one that is read, or for WAW the one that is written last.
    bytes : int
        How many bytes they share, at the level that was asked for.
    ordered : bool
        A path of the graph leads from the first step to the second. Otherwise only the schedule has them in order.
    broken : bool
        The recorded order is not the required one: the first step overwrote what the second reads, which so does not
        see what the graph says.
    sentence : str
    known : {"exact", "range", "root"}
        How precisely it is known which bytes the two touch. If it is not exact, ``bytes`` is the most that they share.
    confidence : {"certain", "likely", "unknown"}
        How sure it is that they share bytes: likely where a name alone says whose memory one of them touches, unknown
        where each may touch others.
    """

    kind: str
    first: int
    second: int
    storage: int
    root: str
    value: str
    bytes: int
    ordered: bool
    broken: bool
    sentence: str
    known: Level = "exact"
    confidence: str = "certain"

    def __repr__(self) -> str:
        return str(late("view.record_tables:hazard_text")(self))

    def _repr_html_(self) -> str:
        return Hazards((self,))._repr_html_()


class Hazards(tuple[Hazard, ...]):
    """Hazards in the order of their second step; shown as a table."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(late("view.record_tables:hazards_table")(self)) if self else "no hazards"

    def _repr_html_(self) -> str:
        return str(late("view.record_tables:hazards_table")(self)._repr_html_())
