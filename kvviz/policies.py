"""Named policies: ``kvviz.policies.ideal``, ``kvviz.policies.never``."""

from kvviz.engine.policy import ideal, never

__all__ = ["ideal", "never"]
