"""The common part of kvviz's widgets: a bundle for the page, its look, and answers to the page's requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import anywidget
import traitlets
from IPython.display import display

from kvviz.errors import KvvizError
from kvviz.view.page_modules import bundled
from kvviz.widget.still_image import saved


def whole_number(message: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """A whole number in a message from the page; raises `KvvizError` if it is not one."""
    value = message.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise KvvizError(f"the page sent {name}={value!r}, which is not a whole number")
    return value


class Listener(anywidget.AnyWidget):
    """A widget that receives messages from the page until it is closed, and can be garbage-collected afterwards.

    Its bundle is a text: if it were a file, anywidget would keep every widget alive to watch for changes.
    """

    still = traitlets.Unicode().tag(sync=True)

    def __init__(self, **traits: Any) -> None:
        super().__init__(still=uuid4().hex, **traits)
        self.on_msg(self._receive)

    def close(self) -> None:
        """Remove the widget from the page, and release it."""
        self.on_msg(self._receive, remove=True)
        self.layout.close()
        super().close()

    def _receive(self, _widget: Any, message: Mapping[str, Any], _buffers: Any) -> None:
        raise NotImplementedError


class Page(Listener):
    """A widget that is drawn by one of kvviz's bundles.

    ``payload``: the data that the bundle draws. Synced.
    ``cursor``: number of the step, or planning event, that is shown; -1 before the first. Synced.
    ``theme``: ``"auto"``, ``"light"`` or ``"dark"``. Synced.
    ``height``: in px. Synced.
    ``still``: key by which the page finds the saved picture beside it. Synced.
    """

    _esm = bundled("kvviz.js").decode()
    _css = bundled("kvviz.css").decode()

    payload = traitlets.Bytes().tag(sync=True)
    cursor = traitlets.Int(-1, min=-1).tag(sync=True)
    theme = traitlets.Unicode("auto").tag(sync=True)
    height = traitlets.Int(720).tag(sync=True)

    def _receive(self, _widget: Any, message: Mapping[str, Any], _buffers: Any) -> None:
        known = message if isinstance(message, Mapping) else {}
        try:
            self._stand_where(known)
            answer = self._answer(known)
        except KvvizError as error:
            answer = {"error": str(error)}
        except KeyboardInterrupt:  # it stopped the page's request, so the page gets the error
            answer = {"error": "stopped from the keyboard; what ran until then is here"}
        except Exception as error:  # the page must get an answer to any error
            answer = {"error": f"{type(error).__name__}: {error}"}
        if answer is not None:
            buffers = answer.pop("buffers", None)
            self.send({"id": known.get("id"), "side": known.get("side", 0), **answer}, buffers)

    def set_state(self, sync_data: Any) -> None:
        """Apply the page's state. An invalid state is answered with an error and the present state."""
        try:
            super().set_state(sync_data)
        except Exception as error:
            self.send({"id": None, "side": 0, "error": f"the page sent what cannot be shown: {error}"})
            self.send_state([name for name in sync_data if name in self.keys])

    def _stand_where(self, message: Mapping[str, Any]) -> None:
        """Move to the place of a message."""

    def _answer(self, message: Mapping[str, Any]) -> dict[str, Any] | None:
        """The reply to the page, with bytes under ``"buffers"``; None if traits are the reply."""
        return {"error": f"the page asked for {message.get('do')!r}, which this version does not know"}

    def _repr_mimebundle_(self, **options: Any) -> Any:
        bundle = super()._repr_mimebundle_(**options)
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle or {}, {})
        return {**self._still(), **data}, metadata

    def _ipython_display_(self) -> None:
        """Show the page, followed by a separate output for readers that cannot show the page."""
        bundle, metadata = self._repr_mimebundle_()
        still = self._still()
        page = {kind: data for kind, data in bundle.items() if kind not in still or kind == "text/plain"}
        display(page, metadata=metadata, raw=True)
        if still.keys() - {"text/plain"}:
            display(saved(self.still, still), raw=True)

    def _still(self) -> dict[str, Any]:
        return {"text/plain": repr(self)}
