"""What rten does that memory safety does not ask for. Each quirk can be put right by itself, to see what it costs."""

from __future__ import annotations

QUIRKS = {
    "greedy_order": "the planner runs ops that can run in place by kind in the order in which they became ready, "
    "although another one could overwrite its input now",
    "cached_plan": "a plan is kept for the set of outputs: a run that asks for them in another order gets "
    "the plan made for the first one",
    "one_operand": "of a commutative op only the operand with the most elements is tried, the last one on ties; "
    "a captured value counts as empty",
    "sticky_count": "uses are counted in a byte, and 255 is never counted down: such a value is never overwritten",
    "counted_twice": "a value that several bodies of an op name is counted once for each, so they borrow it",
    "one_level": "a captured value is handed over to the next body only, not to a body inside it",
    "kept_captures": "a value that was handed over to a body stays until the end of that body, whoever read it last",
    "unread_outputs": "an output that nobody reads stays until the end of the run",
    "loop_copies": "a value that is handed over to a Loop is copied for every iteration",
}
