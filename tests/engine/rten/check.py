"""What the tests of recordings assert."""

from tests.engine.rten.compare import compare
from tests.engine.rten.fact import BESIDES, CORE
from tests.engine.rten.oracle import run_like
from tests.engine.rten.records import Recording

# What a kernel takes from the pool for itself changes what the pool gives out later; there is no rule in that.
ASSERTED = {*CORE, *BESIDES} - {"pool*"}


def assert_like_rten(recording: Recording) -> None:
    """Run what was recorded, and list the first facts in which the trace differs."""
    trace, feeds = run_like(recording)
    wrong = [str(fact) for fact in compare(trace, recording, feeds) if fact.kind in ASSERTED]
    assert not wrong, f"{len(wrong)} facts differ:\n" + "\n".join(wrong[:12])
