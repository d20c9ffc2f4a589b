"""Settings that every test runs under."""

import os
import signal
import sys
from collections.abc import Iterator

# Whoever starts the tests in the background may have the keyboard's interrupt ignored, which some of them raise.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Before numpy is imported: one BLAS thread, so that sums and timings do not depend on the machine's cores.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ["MPLBACKEND"] = "agg"
# jsonschema builds 38 parsers of addresses if it can, in every test process, and no schema here asks for an address.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

import pytest
from hypothesis import settings

# A slow machine is no failure; in CI the same examples are tried each time, so that a red run can be repeated.
settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if "CI" in os.environ else "here")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the browser tests last: what is wrong below them is said sooner and shorter by the others."""
    items.sort(key=lambda item: item.get_closest_marker("ui") is not None)


@pytest.fixture(scope="module", autouse=True)
def _own_caches_are_emptied(request: pytest.FixtureRequest) -> Iterator[None]:
    """What the helpers of a module keep for its tests goes with them: every full collection would walk it."""
    yield
    for value in vars(request.module).values():
        if getattr(value, "__module__", None) == request.module.__name__ and hasattr(value, "cache_clear"):
            value.cache_clear()
