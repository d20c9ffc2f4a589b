"""The cases on which the page's queries are tested are what Python reads and finds today."""

from __future__ import annotations

import gzip
import json

from tests.view.golden import TRACES
from tests.view.query_cases import FILE, cases


def test_committed_cases_are_what_python_reads_and_finds() -> None:
    told = json.loads(gzip.decompress(FILE.read_bytes()))
    now = json.loads(json.dumps(cases(TRACES)))
    assert told["read"] == now["read"], "if it is right now: make golden"
    assert told["found"] == now["found"], "if it is right now: make golden"


def test_most_queries_find_something_and_leave_something_out() -> None:
    found = cases({"growing": TRACES["growing"], "bodies": TRACES["bodies"]})["found"]
    sizes = {text: [of_trace[text][0] for of_trace in found.values() if text in of_trace] for text in found["growing"]}
    several = [text for text, counts in sizes.items() if any(counts)]
    assert len(several) > 0.75 * len(sizes), sorted(set(sizes) - set(several))
