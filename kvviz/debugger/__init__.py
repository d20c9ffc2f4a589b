"""Headless debugging: a cursor over a trace that runs on at the live edge, with breakpoints."""

from kvviz.debugger.breakpoints import Breakpoint
from kvviz.debugger.cursor import Cursor, Stop

__all__ = ["Breakpoint", "Cursor", "Stop"]
