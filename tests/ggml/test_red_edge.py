"""A write into a view and a read through another one: nothing but the order of the list keeps them in order.

Expected values: ggml run on the CPU with these graphs (ggml discussion 1314).
"""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import kvviz
from kvviz.ggml.graph.compute_graph import ComputeGraph
from kvviz.ggml.graph.context import Context
from kvviz.ggml.graph.op_effects import Effect
from kvviz.ggml.graph.tensor import Tensor, new_tensor, type_size
from kvviz.ggml.graph.tensor_data import tensor_get
from kvviz.trace.schema.regions import bounds, overlap
from tests.ggml.seed_graphs import leaf, op


def test_patches_in_place_touch_their_own_bytes_only() -> None:
    ctx = Context()
    k, patch = ctx.new_tensor("f32", 8, 4, name="k", data=np.arange(32)), ctx.new_tensor("f32", 2, 4, data=-1)
    graph = ctx.new_graph()
    for column in (0, 4, 5):
        graph.expand(ctx.set_2d_inplace(k, patch, 32, 4 * column))
    assert [(one.first, one.second, one.kind, one.bytes) for one in kvviz.hazards(graph)] == [(1, 2, "WAW", 4 * 4)]
    kvviz.ggml.run(graph)
    assert (tensor_get(k) < 0).sum(0).tolist() == [4, 4, 0, 0, 4, 4, 4, 0]


def test_in_one_arena_with_places_taken_over_a_second_run_reads_what_the_first_left() -> None:
    # Places as ggml's allocator gives them; x and y are inputs, and only x is overwritten by sqr(x).
    ctx = Context()
    x, y = ctx.new_tensor("f32", 256, name="x"), ctx.new_tensor("f32", 256, name="y")
    a = ctx.sqr(x)
    b = ctx.add(a, y)
    o = ctx.scale(b, 2.0)
    arena = np.zeros(2048, np.uint8)
    for tensor, offset in zip((x, y, a, b, o), (0, 1024, 0, 0, 0)):
        tensor.data = arena[offset : offset + 1024]
    kvviz.ggml.tensor_set(x, 3)
    kvviz.ggml.tensor_set(y, 1)
    graph = ctx.new_graph().expand(o)
    for result in (20, 802):
        kvviz.ggml.run(graph)
        assert (tensor_get(o) == result).all() and (tensor_get(x) == result).all()


def test_a_step_of_adamw_writes_its_moments_too() -> None:
    # given: ggml 0.25.3 leaves 0.2 in m and 0.004 in v of a gradient of 2
    w, grad, m, v = (leaf(name, 4) for name in ("w", "grad", "m", "v"))
    step = op("step", "OPT_STEP_ADAMW", w, grad, m, v, leaf("p", 7), ne=(4,), view_of=w)
    graph = ComputeGraph("adamw").expand(op("before", "SQR", v, ne=(4,))).expand(step)
    graph.expand(op("after", "SQR", m, ne=(4,)))
    assert [(one.kind, one.root, one.bytes) for one in kvviz.hazards(graph)] == [("WAR", "v", 16), ("RAW", "m", 16)]
    assert graph.trace.steps[1].written == 48
    assert [pair.kind for pair in kvviz.ggml.reorder(graph, [2, 0, 1], run=False).broken] == ["RAW"]


TYPES = {"f16": (1, 2), "f32": (1, 4), "q8_0": (32, 34), "q4_0": (32, 18)}
ROOTS = {name: new_tensor(name, (64, 6, 3), "cache") for name in TYPES}


@st.composite
def views(draw: st.DrawFn, root: Tensor) -> Effect:
    """A view that lies in a root: some rows and columns of it, its axes in any order, perhaps only some of its rows."""
    block, size = TYPES[root.type]
    row = 64 // block
    first, rows, plane = draw(st.integers(0, row - 1)), draw(st.integers(0, 5)), draw(st.integers(0, 2))
    ne = [draw(st.integers(1, row - first)), draw(st.integers(1, 6 - rows)), draw(st.integers(1, 3 - plane)), 1]
    nb = [size, row * size * draw(st.sampled_from([1, 1, 2]) if ne[1] <= (6 - rows) // 2 else st.just(1)), *root.nb[2:]]
    offset = first * size + rows * root.nb[1] + plane * root.nb[2]
    if block == 1:
        order = draw(st.permutations([0, 1, 2]))
        ne[:3], nb[:3] = [ne[axis] for axis in order], [nb[axis] for axis in order]
    else:
        ne[0] *= block
    view = Tensor("view", root.type, tuple(ne), tuple(nb), "CPY", view_src=root, view_offs=offset)  # type: ignore[arg-type]
    some = draw(st.none() | st.sets(st.integers(0, ne[1] - 1), min_size=1).map(tuple)) if ne[1] > 1 else None
    return Effect(view, True, some)


def bytes_of(effect: Effect) -> set[int]:
    """Element by element, as ggml's macros of loops over ``ne`` and ``nb`` go."""
    view = effect.tensor
    block, size = TYPES[view.type]
    found: set[int] = set()
    for i0, i1, i2 in np.ndindex(view.ne[0] // block, view.ne[1], view.ne[2]):
        if effect.rows is None or i1 in effect.rows:
            start = view.view_offs + i0 * view.nb[0] + i1 * view.nb[1] + i2 * view.nb[2]
            found.update(range(start, start + size))
    return found


@settings(max_examples=1000, deadline=None)
@given(data=st.data())
def test_two_views_share_as_many_bytes_as_their_elements_do(data: st.DataObject) -> None:
    root = ROOTS[data.draw(st.sampled_from(sorted(TYPES)))]
    one, two = data.draw(views(root)), data.draw(views(root))
    mine, theirs = bytes_of(one), bytes_of(two)
    assert type_size(root.type) == TYPES[root.type]
    assert bounds(one.region) == (min(mine), max(mine) + 1)
    assert overlap(one.region, two.region) == len(mine & theirs)
    assert (overlap(one.region, two.region, "range") > 0) == (
        max(min(mine), min(theirs)) <= min(max(mine), max(theirs))
    )
