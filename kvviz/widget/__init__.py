"""kvviz in a notebook: the debugger, before and after of a change, and the planner, as Jupyter widgets."""

from kvviz.widget.debugger import Debugger
from kvviz.widget.open import debug, plan
from kvviz.widget.pair import Pair
from kvviz.widget.planner import Planner

__all__ = ["Debugger", "Pair", "Planner", "debug", "plan"]
