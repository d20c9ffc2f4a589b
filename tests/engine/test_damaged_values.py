"""Values in a file that somebody changed, with a checksum that is right: refused, or readable in every way."""

from __future__ import annotations

from io import BytesIO
from zipfile import ZipFile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvviz
from kvviz import Trace
from kvviz.errors import LoadError
from kvviz.trace.value_summaries import COLUMNS
from kvviz.view.payload_values import values_payload
from tests.decode.small import small
from tests.engine.test_damaged_traces import signed


@pytest.fixture(scope="module")
def members() -> dict[str, bytes]:
    trace = kvviz.decode(kvviz.load(small("concat").proto), [3, 1, 4], 3, kv_capacity=8, progress=False)
    trace.summarise("200 kB")
    file = BytesIO()
    trace.save(file)
    with ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@given(data=st.data())
def test_any_changed_number_is_refused_or_can_be_read(members: dict[str, bytes], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(COLUMNS)))
    dtype, _ = COLUMNS[name]
    column = np.frombuffer(members[f"values.{name}"], dtype).copy()
    kind = np.dtype(dtype)
    place = data.draw(st.integers(0, len(column) - 1))
    if kind.kind == "f":
        column[place] = data.draw(st.floats())
    else:
        info = np.iinfo(kind)
        column[place] = data.draw(st.sampled_from([info.min, info.max, 0, 1, 7, 100]) | st.integers(info.min, info.max))
    try:
        trace = Trace.load(BytesIO(signed({**members, f"values.{name}": column.tobytes()})))
    except LoadError:
        return
    values = trace.values
    assert values is not None
    for found in values:
        assert found.name and len(found.pictures) <= 2**31
    values.first_nan()
    for cache in range(len(trace.caches)):
        for run in range(len(trace.runs)):
            values.attention(cache, run)
    assert repr(values) and values_payload(trace)


@pytest.mark.parametrize("row", [[0, 0, 2, 2, -1, 0], [0, 0, 2, 2, 2**31 - 1, 0], [0, 0, 2**24 - 1, 0, 2**24 - 1, 0]])
def test_attention_to_rows_that_no_cache_has_is_refused(members: dict[str, bytes], row: list[int]) -> None:
    column = np.frombuffer(members["values.attention"], COLUMNS["attention"][0]).copy()
    column[: len(row)] = row
    with pytest.raises(LoadError, match="numbers out of place"):
        Trace.load(BytesIO(signed({**members, "values.attention": column.tobytes()})))


@pytest.mark.parametrize("name", sorted(COLUMNS))
def test_a_column_that_is_cut_short_is_refused(members: dict[str, bytes], name: str) -> None:
    cut = members[f"values.{name}"][: -np.dtype(COLUMNS[name][0]).itemsize]
    with pytest.raises(LoadError):
        Trace.load(BytesIO(signed({**members, f"values.{name}": cut})))
