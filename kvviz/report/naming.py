"""Labels for two traces that are shown together: what differs between them."""

from __future__ import annotations

from kvviz.runtimes.named_policies import label, schedule_of
from kvviz.trace.recording import Trace


def pair_labels(first: Trace, second: Trace) -> tuple[str, str]:
    """Labels of two traces: the first of changes, policies, orders, titles and options that differs."""
    for name in (_label, _policy, _order):
        names = name(first), name(second)
        if names[0] != names[1]:
            return names
    if first.title != second.title:
        return _titles(first.title, second.title)
    options = _options(first), _options(second)
    differing = [key for key in options[0] if options[0][key] != options[1][key]]
    if not differing:
        return "the first", "the second"
    mine, other = (", ".join(side[key] or f"no {key}" for key in differing) for side in options)
    return mine, other


def _label(trace: Trace) -> str:
    own: str = trace.label
    return own


def _policy(trace: Trace) -> str:
    policy: str = trace.policy.name
    return policy


def _order(trace: Trace) -> str:
    return label(schedule_of(trace.policy))


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
