"""Warnings about caches: each kind from a model or a caller that makes the mistake, and none from one that does not."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

import kvviz
from kvviz import Trace
from kvviz.audit.budget import figures_of, over, read_budget
from kvviz.caches.cache_warnings import KINDS, CacheWarning, cache_warnings
from kvviz.view.page_data.payload import decode as unpacked
from kvviz.view.page_data.payload_cache_rows import cache_payload
from tests.decode import small as forms
from tests.decode.small import DECODERS, NAMES, ROWS, WINDOW, Feeds, Small, filled, positions, small, tensor_scatter
from tests.graph.build import MODELS, node

PROMPT, COUNT = [3, 7, 1, 9], 6
WRONG, WASTE = KINDS[:3], KINDS[3:]


def decode(one: Small, prompt: Any = PROMPT, **options: Any) -> Trace:
    return kvviz.decode(kvviz.load(one.proto), prompt, COUNT, progress=False, **{**one.options, **options})


def of_keys(trace: Trace, *kinds: str) -> list[CacheWarning]:
    """The warnings of some kinds about the cache of the keys."""
    return [w for w in cache_warnings(trace) if w.kind in kinds and w.cache == "past_key_values.0.key"]


# The count that Attention wants is that of the rows after the write.
AFTER = [
    node("Shape", "input_ids", "tokens"),
    node("Gather", "tokens one", "length"),
    node("Add", "write_indices length", "nonpad_kv_seqlen"),
]


@pytest.mark.parametrize("name", DECODERS)
def test_a_right_decode_has_no_warning_about_its_results(name: str) -> None:
    for policy in ("ideal", "never", "onnxruntime"):
        assert not [w for w in cache_warnings(decode(small(name), policy=policy)) if w.kind in WRONG]


@pytest.mark.parametrize("name", sorted(MODELS.glob("o0[1-7]*/model.onnx")), ids=lambda path: path.parent.name)
def test_the_exported_models_have_no_warning_about_their_results(name: Path) -> None:
    ref = np.load(name.parent / "ref.npz")
    encoder = "encoder.out.last_hidden_state"
    inputs = {"encoder_hidden_states": ref[encoder]} if encoder in ref else {}
    trace = kvviz.decode(kvviz.load(name), ref["prompt"].tolist(), 3, inputs, progress=False)
    assert {w.kind for w in cache_warnings(trace)} <= set(WASTE) - {"reserve thrown away"}


# Results that are wrong


def test_a_static_cache_without_a_mask_lets_attention_read_what_is_left_over() -> None:
    unmasked, left = forms.scatter_elements([], forms.attend(bias="nothing")), filled(ROWS, ROWS)
    (empty,) = of_keys(decode(unmasked), *WRONG)
    assert "rows 4 to 23 of 0.key (never written), because no mask hides them; mask the rows" in str(empty)
    (full,) = of_keys(decode(unmasked, inputs=left, donate=list(left)), *WRONG)
    assert "rows 4 to 23 of 0.key (no live token)" in str(full)
    # Left over rows that a mask hides do no harm.
    masked = decode(small("scatter_elements"), inputs=left, donate=list(left))
    assert masked.caches[0].runs[0].stale == ROWS - len(PROMPT) and not of_keys(masked, *WRONG)


def chunked(sizes: list[int], rows: int) -> Trace:
    """A circular cache that is fed chunks of several tokens."""
    count = [*AFTER[:2], node("Add", "write_indices length", "end"), node("Min", "end most", "nonpad_kv_seqlen")]
    one = tensor_scatter("circular", rows, count)
    one.proto.graph.initializer.append(numpy_helper.from_array(np.array(rows, np.int64), "most"))
    chunks: list[Feeds] = []
    past = 0
    for size in sizes:
        ids = np.arange(past, past + size)[None] % 20
        chunks.append({"input_ids": ids, **one.controls(past, size)})
        past += size
    return kvviz.stream(kvviz.load(one.proto), chunks, states=filled(rows))


def test_writing_round_and_round_over_rows_in_the_window_is_told() -> None:
    # given chunks of three: the first of three queries attends to six tokens, two of which the chunk overwrites
    trace = chunked([3, 3, 3], WINDOW)
    (warning,) = of_keys(trace, "live rows overwritten")
    assert (warning.run, warning.runs) == (2, 1)
    assert trace.caches[0].runs[2].items[0].lost == 2
    assert str(warning) == (
        "run 2: 3 rows wrapped around in the 6 rows of 0.key and overwrote 2 tokens in the window of the run's "
        "first query; feed fewer tokens at once, or make the cache 2 rows longer"
    )
    # That query has another result than when it comes alone; the ones before the wrap have not.
    alone = chunked([1] * 9, WINDOW)
    together = np.concatenate([result["logits"] for result in trace.results], 1)
    apart = np.concatenate([result["logits"] for result in alone.results], 1)
    close = np.isclose(together, apart, rtol=1e-3, atol=1e-3).all(axis=(0, 2)).tolist()
    assert close[:6] == [True] * 6 and not close[6]
    # One token at a time takes the place of the one that has just left the window; and so do chunks with more room.
    assert not of_keys(chunked([3, 3, 1, 1, 1], WINDOW), "live rows overwritten")
    assert not of_keys(chunked([2, 2, 2], WINDOW), "live rows overwritten")


def test_writing_over_a_live_row_of_a_linear_cache_is_told() -> None:
    trace = decode(tensor_scatter(count=[node("Mul", "write_indices zero", "at"), *AFTER], at="at"))
    (warning,) = of_keys(trace, "live rows overwritten")
    assert (warning.run, warning.runs) == (1, COUNT - 1)
    assert "0.key got row 0, over 1 token that attention still reads, because of 'at'" in str(warning)
    assert [run.valid for run in trace.caches[0].runs] == [4] * COUNT


# Memory that is wasted


def test_a_capacity_given_as_the_length_of_the_past_makes_the_cache_grow() -> None:
    one, full = small("grouped"), filled(ROWS, 4)
    feeds = {"input_ids": np.array([[5]]), **one.controls(4, 1), **full}
    right = kvviz.run(kvviz.load(one.proto), {**feeds, **{n: full[n].copy() for n in NAMES}}, donate=list(NAMES))
    assert not cache_warnings(right)
    feeds["total_sequence_length"] = np.array(ROWS + 1, np.int32)
    wrong = kvviz.run(kvviz.load(one.proto), feeds, donate=list(NAMES))
    (warning,) = of_keys(wrong, "capacity taken for length")
    assert str(warning) == (
        "run 0: 0.key grew from 24 to 25 rows, although 20 of them hold no token: the capacity of the past was taken "
        "for its valid length; let total_sequence_length count tokens, so that past and present can be one buffer"
    )
    # The result is right all the same.
    np.testing.assert_allclose(wrong.outputs["logits"], right.outputs["logits"], rtol=1e-5, atol=1e-5)
    # A past of Concat with such rows lets attention read them.
    graph, ids = kvviz.load(small("concat").proto), {"input_ids": np.array([[5]])}
    wrong = kvviz.run(graph, {**ids, **positions(ROWS, 1), **full})
    (warning,) = of_keys(wrong, "capacity taken for length")
    assert "give the past without its empty rows" in str(warning)
    assert [w.kind for w in of_keys(wrong, *WRONG)] == ["stale rows attended"]
    right = kvviz.run(graph, {**ids, **positions(4, 1), **{n: full[n][:, :, :4] for n in NAMES}})
    assert not of_keys(right, *WRONG, "capacity taken for length")


def test_a_reserve_that_the_first_run_throws_away_is_told_with_the_way_to_keep_it() -> None:
    wrong = decode(small("merged"), kv_capacity=ROWS)
    (warning,) = of_keys(wrong, "reserve thrown away")
    assert (warning.run, warning.runs) == (0, 1)
    said = "with room for 24 rows of 0.key was thrown away, because the branch that ran makes the cache anew"
    assert said in str(warning)
    right = decode(small("merged"), kv_capacity=ROWS, growth="after")
    assert not of_keys(right, "reserve thrown away", "past copied")
    # The advice is the one that helps.
    assert "growth='after'" in str(warning)
    assert all("growth='after'" in str(w) for w in of_keys(wrong, "past copied"))


@pytest.mark.parametrize(
    ("name", "options", "cause", "advice"),
    [
        ("concat", {}, "its buffer has no room reserved", "reserve room: kv_capacity= in a decode"),
        ("attention", {}, "its buffer has no room reserved", "reserve room: kv_capacity= in a decode"),
        ("grouped", {"policy": "never"}, "the policy 'never' runs nothing in place", "that is a rule of the policy"),
        ("window", {}, "its buffer has no room reserved", "keep the window in a buffer of its own size"),
        ("scatter_nd", {}, "its values do not lie in row-major order", "does not pay again"),
    ],
)
def test_past_and_present_alive_at_once_are_told_with_the_cause(
    name: str, options: dict[str, Any], cause: str, advice: str
) -> None:
    (warning,) = of_keys(decode(small(name), **options), *WASTE)
    assert warning.kind == "past copied"
    assert warning.runs == (1 if name == "scatter_nd" else COUNT - 1)
    assert str(warning).startswith(f"run {warning.run}") and "2 storages with 0.key were alive at once" in str(warning)
    assert cause in str(warning) and advice in str(warning)


def test_a_borrowed_cache_is_copied_until_it_is_given_away_with_room() -> None:
    feeds: Feeds = {"input_ids": np.array([[5]]), **positions(4, 1)}
    graph = kvviz.load(small("concat").proto)
    (both,) = of_keys(kvviz.run(graph, {**feeds, **filled(4, 4)}), *WASTE)
    assert "it belongs to the caller, who did not donate it, and its buffer has no room reserved" in str(both)
    assert "donate 'past_key_values.0.key', and reserve room" in str(both)
    # A part of a larger buffer has no room.
    part = {name: array[:, :, :4] for name, array in filled(8, 8).items()}
    trace = kvviz.run(graph, {**feeds, **part}, donate=list(NAMES))
    assert [w.kind for w in of_keys(trace, *WASTE)] == ["past copied"]
    messages = {b.message for step in trace.steps if step.op_type == "Concat" for b in step.decision.blockers}
    assert any(m.endswith("it lies in a larger buffer, the rest of which is not reserved for it") for m in messages)
    roomy = {name: kvviz.reserve(array, 2, 8) for name, array in part.items()}
    assert not cache_warnings(kvviz.run(graph, {**feeds, **roomy}, donate=list(NAMES)))


@pytest.mark.parametrize("room", [None, 8])
@pytest.mark.parametrize("name", ["storyteller/concat", "storyteller/tensor_scatter"])
def test_all_faces_of_a_report_count_the_same_cache_warnings(name: str, room: int | None) -> None:
    # given a decode whose caches have no room, or have it
    trace = kvviz.decode(kvviz.load(MODELS / name / "model.onnx"), [1, 5, 9], 4, kv_capacity=room, progress=False)
    number = len(kvviz.cache_warnings(trace))
    assert name != "storyteller/concat" or (number > 0) == (room is None)
    found = kvviz.explain(trace)
    verdict = [line.title for line in found.verdict]
    assert len(found.to_dict()["cache_warnings"]) == len(unpacked(cache_payload(trace))[0]["warnings"]) == number
    assert over(read_budget(f"cache_warnings={number}"), figures_of(found)) is not None
    assert (over(read_budget("cache_warnings>0"), figures_of(found)) is not None) == (number > 0)
    assert any("no cache warning" in text for text in verdict) <= (number == 0)
    summed = [part.name for one in found.findings for part in one.parts]
    assert (f"{number} cache warnings" in summed) == (number > 1)
