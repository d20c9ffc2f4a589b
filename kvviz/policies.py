"""Named policies: ``kvviz.policies.ideal``, ``never``, ``rten`` and ``onnxruntime``.

A policy of a runtime is called for a variant of it: ``policies.rten(quirks=False)``. ``policies.of(trace)`` is the one
that a trace was run by, whose facts ``trace.policy`` tells; None where its rules are not known here.
"""

from kvviz.engine.policy import ideal, never
from kvviz.runtimes.ort.ort_policy import onnxruntime
from kvviz.runtimes.policy_data import policy_of as of
from kvviz.runtimes.rten.rten_policy import rten

__all__ = ["ideal", "never", "of", "onnxruntime", "rten"]
