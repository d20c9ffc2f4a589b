"""What the page is told of values: the columns of the trace, and where the first NaN is."""

import numpy as np
import pytest

import kvviz
from kvviz.trace.value_numbers import BINS, NAN, SHADES
from kvviz.trace.value_summaries import COLUMNS
from kvviz.view.export import to_html
from kvviz.view.page_data.packed_columns import unpack
from kvviz.view.page_data.payload_values import values_payload
from kvviz.widget import Debugger
from tests.engine.graphs import graph_of
from tests.outside.told import loaded
from tests.test_models import graph_of as model_of

BROKEN = "g (float[3] x) => (float[3] y) { a = Neg (x) r = Sqrt (a) y = Exp (r) }"


@pytest.fixture(scope="module")
def trace() -> kvviz.Trace:
    made = kvviz.decode(model_of("storyteller/concat"), [1, 2, 3], 4, progress=False)
    made.summarise("10 MB")
    return made


def test_all_columns_are_told_as_they_are(trace: kvviz.Trace) -> None:
    head, columns = unpack(values_payload(trace))
    assert trace.value_summaries is not None and trace.values is not None
    for name, (dtype, width) in COLUMNS.items():
        have = columns[name].tobytes()[: trace.value_summaries.columns[name].nbytes]
        want = trace.value_summaries.columns[name]
        assert np.frombuffer(have, dtype).reshape(-1, width).tobytes() == want.tobytes(), name
    assert head["about"] == trace.values.about() and head["budget"] == 10_000_000
    assert head["codes"] | {"bins": BINS, "nan": NAN, "shades": SHADES} == head["codes"]
    assert values_payload(loaded(trace)) == values_payload(trace)


def test_values_are_told_once_the_page_asks_and_where_the_first_nan_is() -> None:
    graph, x = graph_of(BROKEN), np.array([1, 2, 3], np.float32)
    plain = kvviz.run(graph, {"x": x})
    assert values_payload(plain) == b"" and "kvviz-value_data" not in to_html(plain)
    debugger = Debugger(plain)
    assert debugger.value_data == b""
    debugger._receive(debugger, {"do": "summarise"}, [])
    first = unpack(debugger.value_data)[0]["first"]
    assert first["nan"]["step"] == 1 and first["nan"]["value"] == "r" and first["nan"]["text"].startswith("Sqrt ")
    assert first["inf"] is None
    assert Debugger(plain).value_data == debugger.value_data
    assert "kvviz-value_data" in to_html(kvviz.run(graph, {"x": x}), values="1 kB")


def test_debug_can_be_asked_for_values_at_once() -> None:
    debugger = kvviz.debug(model_of("storyteller/concat"), prompt=[1, 2, 3], max_new_tokens=3, values="50 kB")
    assert debugger.trace.values is not None and debugger.trace.values.budget == 50_000 and debugger.value_data
    assert kvviz.debug(graph_of(BROKEN), {"x": np.ones(3, np.float32)}, values="1 kB").value_data == b""
