"""Policies by name."""

from __future__ import annotations

from kvviz.engine.plans.policy import Policy, ideal, never
from kvviz.errors import KvvizError
from kvviz.runtimes.ort.ort_policy import onnxruntime
from kvviz.runtimes.rten.rten_policy import rten

NAMED = {policy.name: policy for policy in (ideal, never, rten, onnxruntime)}


def find_policy(policy: str | Policy) -> Policy:
    """The policy of that name; a `Policy` is passed through.

    Raises
    ------
    KvvizError
        If no policy has that name.
    """
    if isinstance(policy, Policy):
        return policy
    if policy not in NAMED:
        raise KvvizError(f"there is no policy {policy!r}; choose one of {', '.join(NAMED)} or pass a kvviz.Policy")
    return NAMED[policy]
