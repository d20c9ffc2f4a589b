"""The debugger as a Jupyter widget."""

from kvviz.widget.debugger import Debugger, debug

__all__ = ["Debugger", "debug"]
