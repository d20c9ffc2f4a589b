"""Named policies: ``kvviz.policies.ideal``, ``never``, ``rten`` and ``onnxruntime``.

Call the policy of a runtime to get a variant of it: ``policies.rten(quirks=False)``,
``policies.rten(captures="by_reference")``. ``policies.of(trace)`` is the policy that a trace was run with, or None if
it is not known here; ``trace.policy`` has its facts. `bind` is a policy under which the caller has bound outputs to
inputs, `planning_events` shows a planner at work, and ``QUIRKS`` says what is peculiar to rten.
"""

from kvviz.engine.policy import ideal, never
from kvviz.engine.sessions.io_binding import bind
from kvviz.runtimes.named_policies import planning_events
from kvviz.runtimes.named_policies import policy_of as of
from kvviz.runtimes.ort.ort_policy import onnxruntime
from kvviz.runtimes.rten.rten_planner import QUIRKS
from kvviz.runtimes.rten.rten_policy import rten

__all__ = ["QUIRKS", "bind", "ideal", "never", "of", "onnxruntime", "planning_events", "rten"]
