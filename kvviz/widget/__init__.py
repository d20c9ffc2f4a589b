"""kvviz in a notebook: the debugger, a comparison of two traces, and the planner, as Jupyter widgets."""

from kvviz.widget.debugger_widget import Debugger
from kvviz.widget.open_widget import Planner, debug, plan
from kvviz.widget.pair_widget import Pair

__all__ = ["Debugger", "Pair", "Planner", "debug", "plan"]
