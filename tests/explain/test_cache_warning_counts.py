"""A cache warning is the same thing in the verdict, in the list of caches, in a limit and in `kvviz.cache_warnings`."""

from __future__ import annotations

from pathlib import Path

import pytest

import kvviz
from kvviz.cli.budget import over, read_budget
from kvviz.view.payload import decode as unpacked
from kvviz.view.payload_cache_rows import cache_payload

MODELS = Path(__file__).resolve().parents[2] / "assets" / "models"


@pytest.mark.parametrize("room", [None, 8])
@pytest.mark.parametrize("name", ["storyteller/concat", "storyteller/tensor_scatter"])
def test_all_faces_of_a_report_count_the_same_cache_warnings(name: str, room: int | None) -> None:
    # given a decode whose caches have no room, or have it
    trace = kvviz.decode(kvviz.load(MODELS / name / "model.onnx"), [1, 5, 9], 4, kv_capacity=room, progress=False)
    number = len(kvviz.cache_warnings(trace))
    assert name != "storyteller/concat" or (number > 0) == (room is None)
    # when
    found = kvviz.explain(trace)
    verdict = [one.title for one in found.verdict]
    # then
    assert len(found.to_dict()["cache_warnings"]) == len(unpacked(cache_payload(trace))[0]["warnings"]) == number
    assert over(read_budget(f"cache_warnings={number}"), found) is not None
    assert (over(read_budget("cache_warnings>0"), found) is not None) == (number > 0)
    assert any("no cache warning" in text for text in verdict) <= (number == 0)
    assert (f"{number} cache warnings" in verdict) == (number > 1)
