"""TTNN's IR as text: sizes are worked out by hand from the layouts that the text says."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvviz
from kvviz.device.ttnn.ttnn_program import load_ttnn
from kvviz.errors import KvvizError

PATH = Path(__file__).parents[1] / "data" / "ttnn" / "decode.mlir"
TEXT = PATH.read_text()


def test_functions_are_runs_and_layouts_say_where_tensors_lie_and_how_large_they_are() -> None:
    module = load_ttnn(PATH)
    assert [function.name for function in module.functions] == ["forward_const_eval_0", "forward"]
    ops = [step.op_type for step in module.trace.steps if step.run == 1]
    moved = ["ttcore.load_cached", "to_device", "matmul", "to_memory_config"]
    assert ops == [*moved, "gelu", "reshape", "update_cache", "add"]

    stored = {one.name: (one.space, one.capacity) for one in module.trace.storages}
    for name, space, nbytes in (
        ("%arg0#2", "host", 32 * 64 * 2),  # row major
        ("%arg1", "dram", 2 * 2 * 2048),  # tiles of 32 x 32 bf16
        ("%arg3", "dram", 4),
        ("%2", "dram", 1 * 2 * 2048),
        ("%4", "l1", 2 * 2048),  # a tile on each of two cores
        ("%7", "dram", 2 * 2 * 2048),
    ):
        assert stored[name] == (space, nbytes), name
    # a write into a cache has no edge to what reads it
    (hazard,) = kvviz.hazards(module.trace)
    first, second = (module.trace.steps[step].op_type for step in (hazard.first, hazard.second))
    assert (hazard.kind, hazard.root, first, second) == ("RAW", "%arg2", "update_cache", "add")
    assert hazard.bytes == 2 * 2 * 2048 and not hazard.ordered


def test_a_use_behind_a_deallocation_and_a_trip_over_the_host_are_reported() -> None:
    text = TEXT.replace('"ttnn.gelu"(%4)', '"ttnn.gelu"(%2)')
    used = [found for found in load_ttnn(text).findings if found.code == "USE_AFTER_FREE"]
    assert [found.value for found in used] == ["%2"]
    assert "line 28 uses %2, which line 26 deallocates" in used[0].sentence
    there = '%5 = "ttnn.from_device"(%4) : (tensor<32x64xbf16, #near>) -> tensor<32x64xbf16, #host>\n'
    back = '%8 = "ttnn.to_device"(%5, %1) : (tensor<32x64xbf16, #host>, !ttnn.device) -> tensor<32x64xbf16, #near>\n'
    (gelu,) = (line for line in TEXT.splitlines(keepends=True) if "ttnn.gelu" in line)
    found = load_ttnn(TEXT.replace(gelu, there + back)).findings
    assert [one.value for one in found if one.code == "HOST_ROUND_TRIP"] == ["%8"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("%5 = ", "%4 = ", "line 28: %4 is defined twice"),
        ('"ttnn.gelu"(%4)', '"ttnn.gelu"(%9)', "line 28: ttnn.gelu uses %9, which nothing defines before"),
        ("return %7", "return %9", "@forward returns %9, which nothing defines"),
        ('loc("x")', 'loc("x)', "a string does not end"),
        ("tensor<1xsi32, #index>) -> (", "tensor<1xfoo, #index>) -> (", "element type 'foo' is not known"),
        ("tensor<1xsi32, #index>) -> (", "tensor<?xsi32, #index>) -> (", "unknown size"),
        ("func.func", "func.funk", "no function"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(old: str, new: str, words: str) -> None:
    with pytest.raises(KvvizError, match=r"TTNN text.*" + words.replace("(", r"\(")):
        load_ttnn(TEXT.replace(old, new))


@given(
    st.integers(0, len(TEXT) - 1),
    st.integers(0, 40),
    st.sampled_from(["", "<", ")", "%", "{", "\x00", "9" * 30, "9" * 5000]),
)
@settings(max_examples=150, deadline=None)
def test_text_that_is_damaged_anywhere_is_read_or_refused_in_words(place: int, gone: int, put: str) -> None:
    try:
        load_ttnn(TEXT[:place] + put + TEXT[place + gone :])
    except KvvizError as error:
        assert str(error).startswith("TTNN text")
