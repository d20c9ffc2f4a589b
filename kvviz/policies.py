"""Named policies: ``kvviz.policies.ideal``, ``never``, ``rten`` and ``onnxruntime``.

A policy of a runtime is called for a variant of it: ``policies.rten(quirks=False)``.
"""

from kvviz.engine.policy import ideal, never
from kvviz.runtimes.ort.ort_policy import onnxruntime
from kvviz.runtimes.rten.rten_policy import rten

__all__ = ["ideal", "never", "onnxruntime", "rten"]
