"""How faithful the policy `rten` is: its traces against recordings of rten, as one table."""

from __future__ import annotations

from tests.engine.rten.oracle import agreement, fidelity, print_table, total
from tests.engine.rten.records import models, scenarios

LIMIT = 100.0


def agreement_table() -> bool:
    """Print what was compared, and say whether a decision (order, dispatch, positions taken, identity) differs."""
    print("\npolicy rten against recordings of rten c7f7bad9: facts compared, or how many agree of how many")
    real = agreement(models())
    small = total(agreement(scenarios()), "scenarios")
    print_table([*real, small])
    percent = fidelity(total([*real, small], "all"))
    print(f"decisions as recorded: {percent:.2f} % (limit {LIMIT:.0f})")
    return percent < LIMIT
