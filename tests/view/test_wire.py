"""The payload tells what the trace tells, and nothing of it depends on the clock or the order of a dict."""

import gzip
import json
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvviz
from kvviz.view.page_data import payload
from kvviz.view.page_data.packed_columns import Columns, Strings, pack, unpack
from tests.trace.recordings import copy_into_view, two_lanes
from tests.view.conftest import HOSTILE


@cache
def sent_of(trace: kvviz.Trace) -> tuple[dict, dict[str, np.ndarray]]:
    return payload.decode(payload.payload(trace))


def test_blocks_share_out_the_nodes_that_run_and_each_has_a_drawing_of_its_size(trace: kvviz.Trace) -> None:
    head, _ = sent_of(trace)
    uses = [0] * len(head["drawings"])
    names = [cache["input"] for cache in head["caches"]]
    for graph in head["graphs"]:
        members = [n for block in graph["blocks"] for n in block["nodes"]]
        assert sorted(members) == sorted(graph["order"])
        for block in graph["blocks"]:
            drawing = head["drawings"][block["drawing"]]
            uses[block["drawing"]] += 1
            # the pasts of caches come first
            first = len(drawing["pills"])
            assert len(drawing["boxes"]) == first + len(block["nodes"])
            past = [graph["values"].index(name) for name in names if name in graph["values"]]
            for box, slot in drawing["pills"]:
                _, _, _, inputs, _, captured = graph["nodes"][block["nodes"][box - first]]
                assert [*inputs, *captured][slot] in past
            for box, side, _, _, slot in drawing["stubs"]:
                _, _, _, inputs, outputs, captured = graph["nodes"][block["nodes"][box - first]]
                assert slot < (len(inputs) + len(captured) if side == "in" else len(outputs))
            for a, b, points in drawing["edges"]:
                made = set(graph["nodes"][block["nodes"][a - first]][4]) if a >= first else set(past)
                node = graph["nodes"][block["nodes"][b - first]]
                read = {*node[3], *node[5]}
                assert made & read - {-1}, "an edge stands for a value"
                assert len(points) % 2 == 0 and len(points) >= 4
    assert uses == [
        next(b["alike"] for g in head["graphs"] for b in g["blocks"] if b["drawing"] == d)
        for d in range(len(head["drawings"]))
    ]


def test_the_story_names_for_every_word_the_run_that_said_it(decoded: kvviz.Trace) -> None:
    head, _ = payload.decode(payload.payload(decoded))
    story = head["story"]
    assert [word["text"] for word in story] == decoded.words
    assert [word["run"] for word in story] == [None] * len(decoded.prompt) + list(range(len(decoded.tokens)))
    assert [run["label"] for run in head["runs"]] == ["prefill", "decode 1", "decode 2", "decode 3"]
    assert [run["text"] for run in head["runs"]] == decoded.words[len(decoded.prompt) :]


def test_the_bytes_are_the_same_each_time_and_columns_start_where_typed_arrays_can(trace: kvviz.Trace) -> None:
    assert payload.payload(trace) == payload.payload(trace)
    raw = gzip.decompress(payload.payload(trace))
    size = int.from_bytes(raw[:4], "little")
    head = json.loads(raw[4 : 4 + size])
    assert (4 + size) % 8 == 0
    sizes = [length * {"s": 4, "d": 8}[kind] for kind, length in head["columns"].values()]
    assert len(raw) == 4 + size + sum(nbytes + -nbytes % 8 for nbytes in sizes)


def test_hostile_names_arrive_unchanged(hostile: kvviz.Trace) -> None:
    head, _ = sent_of(hostile)
    assert [node[0] for node in head["graphs"][0]["nodes"]] == list(HOSTILE)
    assert max(map(len, head["strings"])) < 400


@pytest.mark.parametrize("length", [0, 1, 2, 3, 7])
def test_any_header_length_and_any_column_length_comes_back(length: int) -> None:
    columns = Columns()
    columns.ints("a", range(length))
    columns.rows("b", "x i, y d", [(i, i / 2) for i in range(length)])
    columns.floats("bytes", [2**40 + 1])
    header, back = unpack(pack({"text": "ü" * length}, columns))
    assert header["text"] == "ü" * length and back["bytes"].tolist() == [2**40 + 1]
    assert back["a"].tolist() == back["b.x"].tolist() == list(range(length))
    assert back["b.y"].tolist() == [i / 2 for i in range(length)]


@given(st.lists(st.text(st.sampled_from("ab 019.,-\x01é"), max_size=12), unique=True))
def test_texts_come_back_as_they_were_whatever_numbers_are_in_them(texts: list[str]) -> None:
    strings, columns = Strings(), Columns()
    for text in texts:
        strings(text)
    header, _ = unpack(pack({"strings": strings.table(columns)}, columns))
    assert header["strings"] == texts


def test_texts_that_differ_in_numbers_alone_are_told_once() -> None:
    strings, columns = Strings(), Columns()
    for step in range(1000):
        strings(f"Add wrote 4,096 B to a new buffer B{step}; step {2 * step} reads it")
    assert len(strings.table(columns)) == 1
    assert len(pack({}, columns)) < 300


@pytest.mark.parametrize("recorded", [copy_into_view, two_lanes])
def test_where_storages_lie_is_told_where_any_lies_in_an_arena(
    recorded: Callable[[], kvviz.Trace], decoded: kvviz.Trace
) -> None:
    assert not {"storage.space", "storage.arena", "storage.address"} & set(sent_of(decoded)[1])
    trace = recorded()
    head, col = sent_of(trace)
    strings = head["strings"]
    told = list(zip(col["storage.space"], col["storage.arena"], col["storage.address"], strict=True))
    assert [(strings[space], strings[arena], None if at < 0 else int(at)) for space, arena, at in told] == [
        (s.space, s.arena, s.address) for s in trace.storages
    ]
    assert {s.arena for s in trace.storages} > {""}
