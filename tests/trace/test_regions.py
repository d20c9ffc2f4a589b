"""Regions: the bytes that they have and share, against sets of bytes, NumPy and gguf; and where they begin."""

import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES
from hypothesis import given, settings
from hypothesis import strategies as st

import kvviz
from kvviz.trace.index.lifetimes import FrameSteps, LogValues, offsets
from kvviz.trace.reasons import offset_of
from kvviz.trace.schema.element_types import BLOCKS, nbytes, unit
from kvviz.trace.schema.log import distinct
from kvviz.trace.schema.regions import Region, bounds, overlap, packed_strides, spans
from tests.engine.test_trace import make
from tests.graph.build import MODELS

BLOCK_BYTES = {"q8_0": (32, 34), "q4_0": (32, 18), "float32": (1, 4), "int8": (1, 1), "float16": (1, 2)}


@st.composite
def regions(draw: st.DrawFn) -> Region:
    dtype = draw(st.sampled_from(sorted(BLOCK_BYTES)))
    shape = draw(st.lists(st.integers(0, 4), min_size=1, max_size=3))
    strides = [draw(st.sampled_from((0, 1, 2, 4, 8, 12, 18, 34, 36, 68, 136, -4, -34))) for _ in shape]
    shape[-1] *= BLOCK_BYTES[dtype][0]
    region = Region(500 + draw(st.integers(0, 40)), tuple(shape), tuple(strides), dtype)
    if draw(st.booleans()) and min(strides) > 0:
        reach = bounds(region)[1] - bounds(region)[0]
        region = region._replace(rows=tuple(reach * row for row in draw(st.sets(st.integers(0, 5), max_size=3))))
    return region


def bytes_of(region: Region, unit: tuple[int, int] | None = None) -> set[int]:
    """Element by element; ``unit``: how many lie together, in how many bytes."""
    elements, size = unit or BLOCK_BYTES[region.dtype]
    counts = (*region.shape[:-1], region.shape[-1] // elements) if region.shape else ()
    found: set[int] = set()
    for row in (0,) if region.rows is None else region.rows:
        for place in np.ndindex(*counts):
            first = region.offset + row + sum(i * stride for i, stride in zip(place, region.strides))
            found.update(range(first, first + size))
    return found


@settings(max_examples=500)
@given(one=regions(), two=regions())
def test_two_regions_share_what_sets_of_bytes_share(one: Region, two: Region) -> None:
    mine, theirs = bytes_of(one), bytes_of(two)
    assert overlap(one, two) == overlap(two, one) == len(mine & theirs)
    if one.rows is None is two.rows:
        assert {byte for low, high in spans(one, two) or () for byte in range(low, high)} == mine & theirs
    if not mine or not theirs:
        assert overlap(one, two, "range") == overlap(one, two, "root", 4096) == 0
        return
    assert bounds(one) == (min(mine), max(mine) + 1)
    both = range(max(min(mine), min(theirs)), min(max(mine), max(theirs)) + 1)
    assert overlap(one, two, "range") == len(both)
    assert overlap(one, two, "root", 4096) == 4096


@given(st.data())
def test_slices_of_one_array_share_what_numpy_finds(data: st.DataObject) -> None:
    block = np.zeros((6, 5, 4), np.int16)
    parts, found = [], []
    for mark in (1, 2):
        steps = [data.draw(st.sampled_from((1, 2, -1, -2))) for _ in range(3)]
        firsts = [data.draw(st.integers(0, n - 1)) for n in block.shape]
        part = block[tuple(slice(a, None, s) for a, s in zip(firsts, steps))].transpose(
            data.draw(st.permutations(range(3)))
        )
        marked = np.zeros(block.nbytes, np.uint8).view(np.int16).reshape(block.shape)
        marked[tuple(slice(a, None, s) for a, s in zip(firsts, steps))] = mark
        found.append(marked != 0)
        offset = part.__array_interface__["data"][0] - block.__array_interface__["data"][0]
        parts.append(Region(offset, part.shape, part.strides, part.dtype))
    assert overlap(parts[0], parts[1]) == 2 * int((found[0] & found[1]).sum())


def test_the_sizes_of_blocks_are_those_of_ggml() -> None:
    known = {kind.name.lower(): sizes for kind, sizes in GGML_QUANT_SIZES.items()}
    # The package still has the eight bytes of scales that q8_1 had before they became half as long.
    assert {name.lower(): sizes for name, sizes in BLOCKS.items() if name != "q8_1"} == {
        name: sizes for name, sizes in known.items() if name in {n.lower() for n in BLOCKS} and name != "q8_1"
    }
    assert nbytes((64, 576), "q8_0") == 64 * 576 // 32 * 34
    assert packed_strides(*unit((64, 576), "q4_0")) == (576 // 32 * 18, 18)


def test_rows_that_are_known_are_all_that_is_touched() -> None:
    cache = Region(0, (8, 64), (68, 34), "q8_0")
    written = cache.only([5, 0, 5])
    assert overlap(written, cache) == 2 * 68 and bounds(written) == (0, 6 * 68)


def test_regular_distances_are_compared_exactly_and_others_as_ranges_where_they_are_too_many() -> None:
    even = Region(0, (10**7,), (8,), "float32")
    odd = even._replace(offset=4)
    assert overlap(even, odd) == 0 and overlap(even, Region(0, (10**7,), (4,), "float32")) == 2 * 10**7
    for rows in (10**5, 10**6):
        # 8i = 12j + 1 has no solution.
        one, two = Region(0, (rows,), (8,), "int8"), Region(1, (rows,), (12,), "int8")
        assert overlap(one, two) == (0 if rows == 10**5 else overlap(one, two, "range"))


def test_views_of_views_begin_where_one_look_after_the_other_finds_them() -> None:
    # given
    graph = kvviz.load(MODELS / "o02_optimum1_merged_gpt2" / "model.onnx")
    decodes = [kvviz.decode(graph, [5, 17, 33], 3, policy=name, progress=False) for name in ("ideal", "rten")]
    moved = 0
    for trace in (*decodes, make("loop"), make("nested"), make("functions")):
        # when
        values = LogValues(trace.log)
        _, outs = trace.log.tables()
        chained = np.flatnonzero((outs[:, 0] >= 0) & (outs[:, 3] < 0))
        found = offsets(FrameSteps(values))[chained].tolist()
        # then
        assert found == [offset_of(trace, step) for step in values.step[chained].tolist()]
        moved += sum(offset > 0 for offset in found)
    assert moved > 50


@pytest.mark.parametrize("limit", [7, 1 << 40])
def test_numbers_are_told_apart_with_a_table_and_without(limit: int) -> None:
    found, places = distinct(np.array([5, 3, 3, 0, 5, 6]), limit)
    assert found.tolist() == [0, 3, 5, 6] and places.tolist() == [2, 1, 1, 0, 2, 3]
