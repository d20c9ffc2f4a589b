"""One fact that a trace and a recording both state, and the sentence that tells where they differ."""

from dataclasses import dataclass
from typing import Any

# What the tests insist on, and what is compared beside it.
CORE = ("order", "dispatch", "taken", "identity")
BESIDES = ("sequence", "uses", "captures", "reasons", "pool", "pool*", "freed", "result", "values")

_TEXTS = {
    "order": "op {step} of the plan is {rten} in rten and {ours} here",
    "dispatch": "{node} ({op}) is dispatched as {rten} in rten and as {ours} here{why}",
    "taken": "{node} ({op}) is handed the positions {rten} in rten and {ours} here{why}",
    "identity": "{about}, an output of {node} ({op}), lives in the buffer of {rten} in rten and of {ours} here{why}",
    "sequence": "{node} ({op}) completes as op {rten} of the run in rten and as op {ours} here",
    "uses": "{about} has a use count of {rten} in rten and {ours} here",
    "captures": "{about} is captured by {rten} in rten and by {ours} here",
    "reasons": "{node} ({op}) leaves {about} alone for {rten} in rten and for {ours} here{why}",
    "pool": "{about}, an output of {node} ({op}), gets its memory as {rten} in rten and as {ours} here",
    "pool*": "{about}, an output of {node} ({op}), after scratch gets its memory as {rten} in rten and as {ours} here",
    "freed": "after {node} ({op}) the memory of {rten} is dead in rten, and of {ours} here",
    "result": "the result {about} lies in the memory of {rten} in rten and of {ours} here",
    "values": "the result {about} holds {rten} but {ours} here",
}


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that both sides say: of which kind, of which op, about which value, and what each says.

    Attributes
    ----------
    kind : str
        One of `CORE` or `BESIDES`.
    path : str
        Frame, as rten names it.
    step : int
        Position in the plan of the frame.
    node, op, about : str
    rten, ours : object
    why : str
        More about a disagreement.
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
        told = {"rten": rten, "ours": ours, "why": f" ({self.why})" if self.why else ""}
        known = {name: getattr(self, name) for name in ("step", "node", "op", "about")}
        return f"{self.path} #{self.step}: " + _TEXTS[self.kind].format(**known, **told)
