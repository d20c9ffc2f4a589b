"""How faithful the policy `rten` is: its traces against recordings of rten, as one table."""

from __future__ import annotations

from collections import Counter

from tests.engine.rten.compare import BESIDES, CORE
from tests.engine.rten.oracle import agreement
from tests.engine.rten.records import models, scenarios

LIMIT = 100.0


def agreement_table() -> bool:
    """Print what was compared, and say whether a decision (order, dispatch, positions taken, identity) differs."""
    print("\npolicy rten against recordings of rten c7f7bad9: facts compared, or how many agree of how many")
    rows = {name: agreement([name]) for name in models()} | {"scenarios": agreement(scenarios())}
    rows["all"] = sum(rows.values(), Counter())
    print(f"{'':<30}" + "".join(f"{kind:>14}" for kind in CORE + BESIDES))
    for name, found in rows.items():
        print(f"{name:<30}" + "".join(f"{_cell(found, kind):>14}" for kind in CORE + BESIDES))
    agree, differ = (sum(rows["all"][kind, same] for kind in CORE) for same in (True, False))
    percent = 100 * agree / (agree + differ)
    print(f"decisions as recorded: {percent:.2f} % (limit {LIMIT:.0f})")
    return percent < LIMIT


def _cell(found: Counter[tuple[str, bool]], kind: str) -> str:
    agree, differ = found[kind, True], found[kind, False]
    return f"{agree}/{agree + differ}" if differ else f"{agree}"
