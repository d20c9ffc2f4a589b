"""One fact that a trace and a recording both state, and the sentence that tells where they differ."""

from dataclasses import dataclass
from typing import Any

# What the tests insist on, and what is compared beside it.
CORE = ("order", "dispatch", "taken", "identity")
BESIDES = ("sequence", "uses", "captures", "reasons", "pool", "pool*", "freed", "result", "values")


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that both sides say: of which kind, of which op, about which value, and what each says.

    ``kind``: one of `CORE` or `BESIDES`. ``path``: the frame, as rten names it. ``step``: a position in its plan.
    """

    kind: str
    path: str
    step: int
    node: str
    op: str
    about: str
    rten: Any
    ours: Any
    why: str = ""

    @property
    def agrees(self) -> bool:
        """Both sides say the same."""
        return self.rten == self.ours

    def __str__(self) -> str:
        rten, ours = ("nobody" if side is None else side for side in (self.rten, self.ours))
        who = f"{self.node} ({self.op}) {self.about}".strip()
        return f"{self.path} #{self.step}, {self.kind} of {who}: {rten} in rten, {ours} here; {self.why}"
