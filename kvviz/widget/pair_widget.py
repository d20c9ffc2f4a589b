"""Two traces as lanes of one debugger, which can switch between them at the same op of the same run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvviz.runtimes.named_policies import label, schedule_of
from kvviz.trace.model_or_trace import as_trace
from kvviz.trace.recording import Trace
from kvviz.widget.debugger_widget import Debugger
from kvviz.widget.page_widget import still_pair


def pair_labels(first: Trace, second: Trace) -> tuple[str, str]:
    """Labels of two traces: the first of changes, policies, orders, titles and options that differs."""
    facts = ((trace.label, trace.policy.name, label(schedule_of(trace.policy))) for trace in (first, second))
    for mine, other in zip(*facts):
        if mine != other:
            return mine, other
    if first.title != second.title:
        return _titles(first.title, second.title)
    options = _options(first), _options(second)
    differing = [key for key in options[0] if options[0][key] != options[1][key]]
    if not differing:
        return "the first", "the second"
    mine, other = (", ".join(side[key] or f"no {key}" for key in differing) for side in options)
    return mine, other


def _titles(first: str, second: str) -> tuple[str, str]:
    """Two titles without a common beginning that ends in a colon."""
    head, colon, rest = first.partition(": ")
    if colon and rest and second.startswith(head + colon) and second != head + colon:
        return _titles(rest, second.removeprefix(head + colon))
    return first or "no title", second or "no title"


def _options(trace: Trace) -> dict[str, str]:
    """The caller's options by name; empty texts for defaults."""
    options = trace.options
    capacity, tokens = options.kv_capacity, options.max_new_tokens
    return {
        "kv_capacity": "" if capacity is None else f"kv_capacity={capacity}",
        "growth": f'growth="{options.growth}"',
        "cache": f'cache="{options.cache}"',
        "donation": "donate " + ", ".join(options.donate) if options.donate else "",
        "tokens": "" if tokens is None else f"{tokens} tokens",
    }


class Pair(Debugger):
    """Two traces of the same inputs, compared step by step.

    Parameters
    ----------
    first, second : Trace
    labels : pair of str, optional
        What to call them; by default what differs between them.
    height : int
        Height in px.

    Attributes
    ----------
    first, second : Trace
    labels : pair of str
    lane : int
        Which of them is shown, 0 or 1. Synced: set it, and ``cursor`` goes to the step at which the same op of the same
        run and frame ran, or to the nearest earlier one that has such a partner.

    Examples
    --------
    >>> Pair(kvviz.run(graph, inputs), kvviz.run(graph, inputs, policy="rten"))        # doctest: +SKIP
    """

    def __init__(
        self, first: Trace, second: Trace, labels: Sequence[str] | None = None, height: int = 720, **options: Any
    ) -> None:
        first, second = as_trace(first, "kvviz.Pair"), as_trace(second, "kvviz.Pair")
        self.first, self.second = first, second
        names = pair_labels(first, second) if labels is None else labels
        self.labels = (str(names[0]), str(names[1]))
        super().__init__(first, height, **options)
        self._lanes.rename(0, self.labels[0])
        self._lanes.add(second, 0, self.labels[1])
        self._send_lanes(0)

    def _still(self) -> dict[str, Any]:
        shown = self.lane if self.lane in (0, 1) else 0
        steps = [self._lanes.partner(shown, lane, self.cursor) for lane in (0, 1)]
        return still_pair((self.first, self.second), self.labels, steps)

    def __repr__(self) -> str:
        return f"<Pair of {self.first!r} and {self.second!r}>"
