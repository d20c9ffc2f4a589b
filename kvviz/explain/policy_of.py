"""The policy that a trace was run by: its own, or of a loaded trace the one of kvviz that its facts describe."""

from __future__ import annotations

from typing import Any

from kvviz.engine.policy import Policy, ideal
from kvviz.runtimes.named_policies import NAMED


def policy_of(trace: Any) -> Policy | None:
    """The policy, or None if it is not known here."""
    facts = trace.policy
    if isinstance(facts, Policy):
        return facts
    named = NAMED.get(facts.name)
    told = (facts.about, facts.version, facts.rules)
    return named if named is not None and told == (named.about, named.version, named.rules) else None


def rules_of(trace: Any) -> Policy:
    """The policy; the one that asks for memory safety alone where it is not known."""
    return policy_of(trace) or ideal
