"""TTNN's IR as text: what its ops write, free and copy, and sizes that are worked out by hand from its layouts."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvviz
from kvviz.device.ttnn.ttnn_program import TtnnModule, load_ttnn
from kvviz.errors import KvvizError


def layout(name: str, rank: int, grid: str, tiles: str, space: str, memory: str = "interleaved") -> str:
    """An alias of a layout: so many tiles of 32 x 32 bf16, of 2,048 B each, on each core of a grid."""
    axes = ", ".join(f"d{axis}" for axis in range(rank))
    held = f"memref<{tiles}x!ttcore.tile<32x32, bf16>, #{space}>"
    return f"#{name} = #ttnn.ttnn_layout<({axes}) -> ({axes}), <{grid}>, {held}{f', <{memory}>' * (space != 'host')}>\n"


# A cache has four blocks of two heads of 32 rows: 16 tiles, 32,768 B; keys and values in one tensor have twice as many.
HEAD = "".join(
    [
        "#dram = #ttnn.buffer_type<dram>\n#l1 = #ttnn.buffer_type<l1>\n#host = #ttnn.buffer_type<system_memory>\n",
        layout("flat", 2, "1x1", "2x2", "dram"),
        layout("up", 2, "1x1", "2x2", "host"),
        layout("near", 4, "1x2", "2x1", "l1", "width_sharded"),
        layout("far", 4, "1x1", "2x2", "dram"),
        layout("pair", 5, "1x1", "16x2", "dram"),
        layout("half", 5, "1x1", "8x2", "dram"),
        layout("cache", 4, "1x1", "8x2", "dram"),
        layout("grown", 4, "1x1", "16x2", "dram"),
        layout("row", 4, "1x1", "1x2", "dram"),
        "#ints = #ttnn.ttnn_layout<(d0) -> (0, d0), <1x1>, memref<1x1xsi32, #dram>, <interleaved>>\n",
    ]
)
FLAT, UP = "tensor<64x64xbf16, #flat>", "tensor<64x64xbf16, #up>"
NEAR, FAR = "tensor<1x1x64x64xbf16, #near>", "tensor<1x1x64x64xbf16, #far>"
PAIR, HALF = "tensor<2x4x2x32x64xbf16, #pair>", "tensor<1x4x2x32x64xbf16, #half>"
CACHE, GROWN = "tensor<4x2x32x64xbf16, #cache>", "tensor<4x2x64x64xbf16, #grown>"
ROW, INTS = "tensor<1x1x32x64xbf16, #row>", "tensor<1xsi32, #ints>"


def op(
    name: str, operands: Sequence[tuple[str, str]], result: tuple[str, str] | None = None, attributes: str = ""
) -> str:
    """A line of the generic form; operands and result are names with their types."""
    made, type_ = (f"{result[0]} = ", result[1]) if result else ("", "()")
    given, types = (", ".join(one[place] for one in operands) for place in (0, 1))
    return f'{made}"ttnn.{name}"({given}){f" <{{{attributes}}}>" * bool(attributes)} : ({types}) -> {type_}'


def module(arguments: Sequence[str], lines: Sequence[str], returned: Sequence[tuple[str, str]] = ()) -> TtnnModule:
    """A function ``@decode``."""
    given = ", ".join(f"%arg{number}: {type_}" for number, type_ in enumerate(arguments))
    types = ", ".join(type_ for _, type_ in returned)
    end = f"return {', '.join(name for name, _ in returned)} : {types}" if returned else "return"
    return load_ttnn(f"{HEAD}func.func @decode({given}) -> ({types}) {{\n" + "\n".join([*lines, end]) + "\n}\n")


def codes(found: TtnnModule) -> list[str]:
    return [one.code for one in found.findings]


# -- what is written in place -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "places"),
    [
        ("fill_cache", [CACHE, ROW], [0]),
        ("update_cache", [CACHE, ROW, INTS], [0]),
        ("paged_update_cache", [CACHE, ROW, INTS], [0]),
        ("paged_fill_cache", [CACHE, ROW, INTS], [0]),
        ("copy", [FLAT, FLAT], [1]),
        ("write_tensor", [UP, FLAT], [1]),
        ("adamw", [FLAT, FLAT, FLAT, FLAT], [0, 2, 3]),
        ("adamw", [FLAT, FLAT, FLAT, FLAT, FLAT], [0, 2, 3, 4]),
    ],
)
def test_who_reads_what_an_op_wrote_in_place_reads_after_it_by_order_alone(
    name: str, arguments: list[str], places: list[int]
) -> None:
    # given: each argument is read behind the op, whose results none of them is
    lines = [op(name, [(f"%arg{n}", type_) for n, type_ in enumerate(arguments)])]
    lines += [op("relu", [(f"%arg{n}", type_)], (f"%{n}", type_)) for n, type_ in enumerate(arguments)]
    # when
    found = kvviz.hazards(module(arguments, lines).trace)
    # then
    assert sorted((one.kind, one.root) for one in found) == [("RAW", f"%arg{place}") for place in places]
    assert not any(one.ordered or one.broken for one in found)


def test_an_optimizer_reads_the_moments_that_it_writes_and_a_copy_does_not_read_its_target() -> None:
    for name, count, read in (("adamw", 4, [0, 1, 2, 3]), ("copy", 2, [0])):
        # given: a copy has written each argument before
        lines = [op("copy", [("%arg9", FLAT), (f"%arg{n}", FLAT)]) for n in range(count)]
        lines += [op(name, [(f"%arg{n}", FLAT) for n in range(count)])]
        found = kvviz.hazards(module([FLAT] * 10, lines).trace)
        assert {one.root for one in found if one.kind == "RAW"} == {f"%arg{n}" for n in read}


@pytest.mark.parametrize(("segments", "places"), [("1, 1, 1, 0, 0", [1, 2]), ("1, 0, 0, 1, 1", [])])
def test_a_batch_norm_in_training_writes_its_statistics_where_it_has_them(segments: str, places: list[int]) -> None:
    given = [(f"%arg{n}", FLAT) for n in range(3)]
    lines = [op("batch_norm_training", given, ("%0", FLAT), f"operandSegmentSizes = array<i32: {segments}>")]
    lines += [op("relu", [one], (f"%r{n}", FLAT)) for n, one in enumerate(given)]
    found = kvviz.hazards(module([FLAT] * 3, lines).trace)
    assert sorted(one.root for one in found) == [f"%arg{place}" for place in places]


# -- what is freed ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("activation", "asked", "behind", "codes"),
    [
        (NEAR, "true", [], []),
        (NEAR, "false", [], ["LEAK"]),
        (FAR, "true", [], ["LEAK"]),
        (NEAR, "true", [op("relu", [("%0", NEAR)], ("%2", FAR)), op("deallocate", [("%2", FAR)])], ["USE_AFTER_FREE"]),
        (NEAR, "true", [op("deallocate", [("%0", NEAR)])], ["DOUBLE_FREE"]),
    ],
)
def test_a_convolution_that_deallocates_its_activation_frees_it_in_l1_alone(
    activation: str, asked: str, behind: list[str], codes: list[str]
) -> None:
    config = f"#ttnn.conv2d_config<weights_dtype = bf16, deallocate_activation = {asked}, act_block_h_override = 0>"
    lines = [
        op("to_memory_config", [("%arg0", FAR)], ("%0", activation)),
        op("conv2d", [("%0", activation), ("%arg1", FAR)], ("%1", FAR), f"conv2d_config = {config}"),
    ]
    found = module([FAR, FAR], [*lines, *behind], [("%1", FAR)])
    assert [(one.code, one.value) for one in found.findings] == [(code, "%0") for code in codes]
    (storage,) = [one for one in found.trace.storages if one.name == "%0"]
    (step,) = [one for one in found.trace.steps if one.op_type == "conv2d"]
    assert storage.freed == (None if codes == ["LEAK"] else step.index)


# -- copies of whole caches -------------------------------------------------------------------------------------------


def layer(number: int) -> list[str]:
    """Keys and values in one tensor, as in tt-xla #4197: two slices, an update of each in place, a concatenation."""
    pair, named = (f"%arg{number}", PAIR), lambda name, type_: (f"%{name}{number}", type_)
    lines, parts = [], []
    for name in "kv":
        part, cache, back = named(name, HALF), named(f"{name}c", CACHE), named(f"{name}b", HALF)
        lines += [op("slice_static", [pair], part), op("reshape", [part], cache)]
        lines += [op("paged_update_cache", [cache, ("%arg8", ROW), ("%arg9", INTS)]), op("reshape", [cache], back)]
        parts.append(back)
    return [*lines, op("concat", parts, named("new", PAIR), "dim = 0 : si32")]


def test_three_copies_of_a_whole_cache_a_layer_are_the_first_thing_said() -> None:
    # given: two layers, and a tensor that leaks
    lines = [*layer(0), *layer(1), op("relu", [("%arg8", ROW)], ("%lost", ROW))]
    # when
    found = module([PAIR, PAIR, *[ROW] * 7, INTS], lines, [("%new0", PAIR), ("%new1", PAIR)])
    # then
    first = found.findings[0]
    assert (first.code, first.value, first.nbytes) == ("WHOLE_CACHE_COPY", "%arg0", 2 * (2 * 32_768 + 65_536))
    assert "copies whole caches 6 times, 3 for each of 2 caches: 262,144 B (4 slice_static, 2 concat)" in first.sentence
    assert codes(found).count("WHOLE_CACHE_COPY") == 1 and "LEAK" in codes(found)
    verdict = [str(one) for one in found.trace.explain().verdict]
    assert verdict[0].startswith("11 warnings: whole cache copy × 6") and "hidden pairs" in verdict[1]
    assert found.trace.bytes_copied == first.nbytes


def test_caches_of_their_own_that_are_updated_in_place_are_not_copied() -> None:
    lines = [op("paged_update_cache", [(f"%arg{n}", CACHE), ("%arg2", ROW), ("%arg3", INTS)]) for n in range(2)]
    # Reading a part of the rows, and moving the new ones, is no copy of the whole.
    lines += [op("slice_static", [("%arg0", CACHE)], ("%0", FAR)), op("deallocate", [("%0", FAR)])]
    lines += [op("permute", [("%arg2", ROW)], ("%1", ROW)), op("deallocate", [("%1", ROW)])]
    found = module([CACHE, CACHE, ROW, INTS], lines, [("%arg0", CACHE), ("%arg1", CACHE)])
    assert codes(found) == []


def test_a_copy_back_into_each_cache_is_counted() -> None:
    """tt-xla #4208: what comes out is not what went in, and is copied there."""
    lines = []
    for n in range(2):
        lines += [op("assign", [(f"%arg{n}", CACHE)], (f"%{n}", CACHE))]
        lines += [op("paged_update_cache", [(f"%{n}", CACHE), ("%arg2", ROW), ("%arg3", INTS)])]
        lines += [op("copy", [(f"%{n}", CACHE), (f"%arg{n}", CACHE)]), op("deallocate", [(f"%{n}", CACHE)])]
    found = module([f"{CACHE} {{ttcore.kv_cache}}"] * 2 + [ROW, INTS], lines)
    assert codes(found) == ["WHOLE_CACHE_COPY"] and found.findings[0].nbytes == 4 * 32_768
    assert "4 times, 2 for each of 2 caches: 131,072 B (2 assign, 2 copy)" in found.findings[0].sentence


@pytest.mark.parametrize(
    ("name", "attributes", "target"),
    [
        ("permute", "permutation = array<i64: 0, 2, 1, 3>", CACHE),
        ("to_memory_config", "", "tensor<4x2x32x64xbf16>"),
        ("repeat_interleave", "repeats = 2 : ui32", GROWN),
        ("typecast", "", "tensor<4x2x32x64xf32>"),
        # What the runtime makes a view copies nothing.
        ("reshape", "shape = [4 : i32, 2 : i32, 32 : i32, 64 : i32]", ""),
        ("permute", "permutation = array<i64: 0, 1, 2, 3>", ""),
        ("pad", "padding = array<i32: 0, 0, 0, 0, 0, 0, 0, 0>, value = 0.0 : f32", ""),
        ("repeat", "repeat_dims = #ttnn.shape<1x1x1x1>", ""),
    ],
)
def test_ops_that_write_a_whole_cache_anew_are_counted_and_views_are_not(
    name: str, attributes: str, target: str
) -> None:
    lines = [op("update_cache", [("%arg0", CACHE), ("%arg1", ROW), ("%arg2", INTS)])]
    lines += [op(name, [("%arg0", CACHE)], ("%0", target or CACHE), attributes)]
    lines += [op("deallocate", [("%0", target)])] * bool(target)
    found = module([CACHE, ROW, INTS], lines)
    assert codes(found)[:1] == ["WHOLE_CACHE_COPY"] * bool(target)
    assert target or (found.trace.steps[-1].outs[0].how == "view" and found.trace.bytes_copied == 0)


def test_a_cache_that_a_concatenation_grows_is_copied_whole_at_each_call() -> None:
    row, long = "tensor<4x2x1x64xbf16>", "tensor<4x2x33x64xbf16>"
    new = op("relu", [("%arg1", row)], ("%0", row))
    joined = op("concat", [("%arg0", CACHE), ("%0", row)], ("%1", long), "dim = 2 : si32")
    found = module([CACHE, row], [new, joined], [("%1", long)])
    assert codes(found) == ["WHOLE_CACHE_COPY"] and found.findings[0].nbytes == 4 * 2 * 33 * 64 * 2
    # Two tensors that are given and joined are no past and its new rows.
    other = op("concat", [("%arg0", CACHE), ("%arg1", row)], ("%1", long), "dim = 2 : si32")
    assert codes(module([CACHE, row], [other], [("%1", long)])) == []


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
