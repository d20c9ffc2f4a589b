"""Running the steps of a recording again in a session, in the recorded order, up to one of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvviz.engine.replay import repeat
from kvviz.interrupts import deliver, held_back
from kvviz.trace.recording import Trace


def follow(session: Any, trace: Trace, upto: int) -> None:
    """Run the steps before ``upto`` of a recording, in a `Session` in which nothing has run; a session mends itself so.

    A run whose steps were dropped runs in the order of the plan.

    Raises `KvvizError`: if the session does not run one of these ops.
    """
    rows, runs = trace.log, trace.runs
    target = rows.frames[rows[upto].frame].run if upto < len(rows) else len(runs) - 1
    with held_back():
        for k in range(target + 1):
            if session.execution is None and not session.next_run():
                break
            execution = session.execution
            assert execution is not None
            stop = upto if k == target else runs[k + 1].first
            with np.errstate(all="ignore"):
                for row in rows[runs[k].first : stop]:
                    repeat(execution, trace, row)
                    deliver()
            session.note_run()
            if k < target:
                session.finish_run()
