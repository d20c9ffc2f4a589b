"""Messages to a debugger, as its page sends them."""

from typing import Any

from kvviz.widget import Debugger


def ask(debugger: Debugger, **message: Any) -> list[dict[str, Any]]:
    """What the debugger sends to the page when the page sends a message."""
    sent: list[dict[str, Any]] = []
    debugger.send = lambda content, buffers=None: sent.append(content)
    debugger._handle_custom_msg(message, [])
    return sent
