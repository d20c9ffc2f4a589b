"""The `Debugger` widget: traits and messages around a headless cursor. It draws nothing and decides nothing.

Recorded steps are scrubbed in the page, which never asks the kernel for them. The kernel is asked at the live edge:
to run on, to run another op of the frontier, to test a Python condition, or for a value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from kvviz.debugger import Breakpoint, Cursor, Stop
from kvviz.decode.loop import DecodeSession
from kvviz.decode.single import SingleRun
from kvviz.engine.policy import Policy
from kvviz.engine.session import Session
from kvviz.engine.trace import Trace
from kvviz.errors import KvvizError
from kvviz.graph.model import Graph
from kvviz.view.export import to_html
from kvviz.view.wire import Payloads
from kvviz.widget.peek import peek
from kvviz.widget.still import still_bundle

STATIC = Path(__file__).parent / "static"


class Debugger(anywidget.AnyWidget):
    """Step through a trace, and run on where it ends.

    Parameters
    ----------
    source : Session or Trace
        A session can be run on; a trace is only looked at.
    height : int
        Height of the widget in px.

    Attributes
    ----------
    cursor : int
        Number of the step that was completed last; -1 before the first. Synced: set it, observe it, or link two
        debuggers by it.
    decode_step : int
        Number of the run that the cursor is in. Synced.
    selection : dict or None
        ``{"kind": "node" | "storage" | "value" | "cache", "id": …, "graph": …}``. Synced.
    breakpoints : list of dict
        ``{"kind", "value", "enabled"}``; see `kvviz.debugger.Breakpoint`. Synced.
    trace : Trace
    """

    _esm = STATIC / "kvviz.js"
    _css = STATIC / "kvviz.css"

    payload = traitlets.Bytes().tag(sync=True)
    edge = traitlets.Bytes().tag(sync=True)
    cursor = traitlets.Int(-1).tag(sync=True)
    decode_step = traitlets.Int(0).tag(sync=True)
    selection = traitlets.Dict(allow_none=True, default_value=None).tag(sync=True)
    breakpoints: Any = traitlets.List().tag(sync=True)
    theme = traitlets.Unicode("auto").tag(sync=True)
    height = traitlets.Int(720).tag(sync=True)

    def __init__(self, source: Session | Trace, height: int = 720, **options: Any) -> None:
        self._cursor = Cursor(source)
        if self._cursor.session is not None:
            self._cursor.session.previews = True
            self._cursor.session.look_ahead()
        self._payloads = Payloads(self._cursor.trace)
        super().__init__(payload=self._payloads.tell(), height=height, **options)
        self.on_msg(self._receive)

    @property
    def trace(self) -> Trace:
        """The trace that is shown."""
        return self._cursor.trace

    # -- the same commands as in the page ---------------------------------------------------------------------------

    def next(self) -> Stop:
        """Complete the next op of this frame, bodies included."""
        return self._do(self._cursor.next)

    def into(self) -> Stop:
        """Complete one more op, wherever it is: the first one of a body, where a body comes next."""
        return self._do(self._cursor.into)

    over = next

    def out(self) -> Stop:
        """Run until this frame's node is complete; in a main graph, to the end of the block that comes next."""
        return self._do(self._cursor.out)

    def back(self) -> Stop:
        """Back to the op before in this frame."""
        return self._do(self._cursor.back)

    def resume(self) -> Stop:
        """Go on to the next breakpoint, or to the end."""
        return self._do(self._cursor.resume)

    def reverse(self) -> Stop:
        """Go back to the last breakpoint, or to the start."""
        return self._do(self._cursor.reverse)

    def next_decode_step(self) -> Stop:
        """Go to the same op in the next run."""
        return self._do(self._cursor.next_decode_step)

    def goto(self, position: int) -> Stop:
        """Go to a step by its number, running on if it has not run yet."""
        return self._do(lambda: self._cursor.goto(position))

    def choose(self, node: Any) -> Stop:
        """Run an op of the frontier next."""
        return self._do(lambda: self._cursor.choose(node))

    def frontier(self) -> tuple[str, ...]:
        """Names of the ops that may run next."""
        self._cursor.position = self.cursor
        return tuple(node.name for node in self._cursor.frontier())

    def to_html(self, path: Any = None) -> str:
        """The debugger in one file that needs neither a kernel nor a network."""
        return to_html(self.trace, path)

    # -- inside -----------------------------------------------------------------------------------------------------

    def _do(self, command: Any) -> Stop:
        before = len(self.trace.steps)
        self._cursor.position = min(self.cursor, before - 1)
        self._cursor.breakpoints = [
            Breakpoint(entry["kind"], entry["value"], entry.get("enabled", True)) for entry in self.breakpoints
        ]
        stop: Stop = command()
        if len(self.trace.steps) != before:
            if self._cursor.session is not None:
                self._cursor.session.look_ahead()
            self.edge = self._payloads.tell(level=1)
        self.cursor = stop.position
        self.decode_step = self._cursor.decode_step
        return stop

    def _receive(self, _widget: Any, message: Mapping[str, Any], _buffers: Any) -> None:
        try:
            answer = self._answer(message)
        except KvvizError as error:
            answer = {"error": str(error)}
        except Exception as error:  # the page must hear of it, whatever it was
            answer = {"error": f"{type(error).__name__}: {error}"}
        if answer is not None:
            self.send({"id": message.get("id"), **answer})

    def _answer(self, message: Mapping[str, Any]) -> dict[str, Any] | None:
        do = message.get("do")
        if do == "value":
            return peek(self.trace, str(message.get("value")), int(message.get("step", self.cursor)))
        if do == "choose":
            frame = self.trace.frames[int(message["frame"])]
            node = frame.graph.nodes[int(message["node"])]
            self.choose(node)
            return None
        commands = {
            "next": self.next,
            "over": self.next,
            "into": self.into,
            "out": self.out,
            "continue": self.resume,
            "next_decode": self.next_decode_step,
        }
        if do not in commands:
            return {"error": f"the page asked for {do!r}, which this version does not know"}
        commands[do]()
        return None

    @traitlets.observe("cursor")
    def _moved(self, change: Any) -> None:
        """Keep the decode step with a cursor that was set from outside, and run on if it was set past the end."""
        if not hasattr(self, "_cursor"):
            return
        size = len(self.trace.steps)
        if change["new"] >= size:
            self.set_trait("cursor", size - 1)
            self.goto(change["new"])
        elif change["new"] >= 0:
            self.decode_step = self.trace.frames[self.trace.recorder.rows[change["new"]][0]].run

    def __repr__(self) -> str:
        return f"<Debugger at step {self.cursor} of {self.trace!r}>"

    def _repr_mimebundle_(self, **options: Any) -> Any:
        bundle = super()._repr_mimebundle_(**options)
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle or {}, {})
        return {**still_bundle(self.trace, self.cursor), **data}, metadata


def debug(
    graph: Graph | Trace | Session,
    inputs: Mapping[str, Any] | None = None,
    *,
    prompt: Any = None,
    outputs: Sequence[str] | None = None,
    donate: Sequence[str] = (),
    policy: str | Policy = "ideal",
    max_new_tokens: int = 16,
    kv_capacity: int | None = None,
    tokenizer: Any = None,
    stop_tokens: Sequence[int] = (),
    recorded: int | None = None,
    height: int = 720,
) -> Debugger:
    """Open the debugger; as a cell's last line it shows itself.

    Parameters
    ----------
    graph : Graph, Trace or Session
        A graph is run with ``inputs`` (one run) or ``prompt`` (a decode); a trace is looked at as it is.
    inputs : mapping, optional
        For one run: all inputs. For a decode: those beside the prompt and the caches.
    prompt : str or sequence, optional
        As in `kvviz.decode`.
    outputs, donate, policy, max_new_tokens, kv_capacity, tokenizer, stop_tokens
        As in `kvviz.run` and `kvviz.decode`.
    recorded : int, optional
        Runs to record before the debugger opens. What is left runs live, as you step into it. By default a single run
        is left to be
        stepped from its first op, and a decode is recorded but for its last token.
    height : int
        Height in px.

    Returns
    -------
    Debugger

    Examples
    --------
    >>> kvviz.debug(graph, prompt="once upon a time", tokenizer=words, max_new_tokens=8)
    """
    if isinstance(graph, (Trace, Session)):
        return Debugger(graph, height)
    session: Session
    if prompt is None:
        if inputs is None:
            raise KvvizError("debug needs inputs={name: array} for one run, or prompt= for a decode")
        session = SingleRun(graph, inputs, outputs, donate, policy)
        runs = recorded or 0
    else:
        session = DecodeSession(graph, prompt, max_new_tokens, inputs, policy, kv_capacity, tokenizer, stop_tokens)
        runs = max(max_new_tokens - 1, 1) if recorded is None else recorded
    for _ in range(runs):
        if session.execution is None and not session.next_run():
            break
        session.finish_run()
    return Debugger(session, height)
