"""The `Planner` widget: how a runtime plans its order of ops, event by event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import traitlets

from kvviz.engine.policy import Policy, Schedule
from kvviz.errors import KvvizError
from kvviz.graph.model import Graph
from kvviz.runtimes.named_policies import find_policy, label, planning_events
from kvviz.view.export import plan_to_html
from kvviz.view.page_data.payload_plan import plan_payload
from kvviz.view.page_modules import bundled
from kvviz.widget.page_widget import Page
from kvviz.widget.still_image import still_plan


class Planner(Page):
    """Step through the planning of a graph, a main graph or a body; the parameters are those of `kvviz.plan`.
    ``cursor``: number of the event that is shown; -1 before the first. Synced. ``selection``: ``{"kind": "node", "id":
    …, "graph": 0}``. Synced."""

    _esm = bundled("planner.js").decode()

    selection = traitlets.Dict(allow_none=True, default_value=None).tag(sync=True)

    def __init__(
        self,
        graph: Graph,
        outputs: Sequence[str] | None = None,
        policy: str | Policy | Schedule = "rten",
        height: int = 720,
        **options: Any,
    ) -> None:
        self.graph = graph
        self.events = planning_events(graph, outputs, policy)
        self.policy = about(policy)
        payload = plan_payload(graph, self.events, self.policy)
        super().__init__(payload=payload, height=height, **options)

    @property
    def order(self) -> tuple[str, ...]:
        """Names of the ops in the order in which they will run."""
        return tuple(event.node.name for event in self.events if event.action == "pick" and event.node is not None)

    def goto(self, event: int) -> None:
        """Show an event by its number; -1 is before the first. Raises `KvvizError` if there is no such event."""
        if not -1 <= event < len(self.events):
            raise KvvizError(f"event {event} does not exist; there are {len(self.events)}, numbered from 0")
        self.cursor = event

    def to_html(self, path: Any = None) -> str:
        """The planner in one file that needs neither a kernel nor a network."""
        return plan_to_html(self.graph, self.events, self.policy, path, event=self.cursor)

    def _still(self) -> dict[str, Any]:
        return still_plan(repr(self), self.events)

    def __repr__(self) -> str:
        return f"<Planner at event {self.cursor} of {len(self.events)}: {len(self.order)} ops, {self.policy['name']}>"


def about(policy: str | Policy | Schedule) -> dict[str, str]:
    if isinstance(policy, str):
        try:
            policy = find_policy(policy)
        except KvvizError:  # the name of a schedule
            return {"name": str(policy), "about": ""}
    if isinstance(policy, Policy):
        return {"name": policy.name, "about": policy.about}
    return {"name": label(policy), "about": ""}
