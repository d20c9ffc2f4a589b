"""A write into a view and a read through another one: nothing but the order of the list keeps them in order.

Expected values: ggml run on the CPU with these graphs (ggml discussion 1314).
"""

import numpy as np
import pytest

import kvviz
from kvviz.ggml.graph.compute_graph import ComputeGraph
from kvviz.ggml.graph.context import Context
from kvviz.ggml.graph.tensor import new_tensor
from kvviz.ggml.graph.tensor_data import tensor_get


def test_patches_in_place_touch_their_own_bytes_only() -> None:
    ctx = Context()
    k, patch = ctx.new_tensor("f32", 8, 4, name="k", data=np.arange(32)), ctx.new_tensor("f32", 2, 4, data=-1)
    graph = ctx.new_graph()
    for column in (0, 4, 5):
        graph.expand(ctx.set_2d_inplace(k, patch, 32, 4 * column))
    assert [(one.first, one.second, one.kind, one.bytes) for one in kvviz.hazards(graph)] == [(1, 2, "WAW", 4 * 4)]
    kvviz.ggml.run(graph)
    assert (tensor_get(k) < 0).sum(0).tolist() == [4, 4, 0, 0, 4, 4, 4, 0]


@pytest.mark.parametrize(
    ("twice", "offsets", "first", "second"), [(False, (0, 0), 20, 802), (True, (1024, 0), 90, 90 * 90 * (90 * 90 + 10))]
)
def test_in_one_arena_with_places_taken_over_a_second_run_reads_what_the_first_left(
    twice: bool, offsets: tuple[int, int], first: float, second: float
) -> None:
    # Places as ggml's allocator gives them; x and y are inputs, and only x is overwritten by sqr(x).
    ctx = Context()
    x, y = ctx.new_tensor("f32", 256, name="x"), ctx.new_tensor("f32", 256, name="y")
    a = ctx.sqr(x)
    b = ctx.add(a, y)
    o = ctx.mul(b, a) if twice else ctx.scale(b, 2.0)
    arena = np.zeros(2048, np.uint8)
    for tensor, offset in zip((x, y, a, b, o), (0, 1024, 0, *offsets)):
        tensor.data = arena[offset : offset + 1024]
    kvviz.ggml.tensor_set(x, 3)
    kvviz.ggml.tensor_set(y, 1)
    graph = ctx.new_graph().expand(o)
    kvviz.ggml.run(graph)
    assert (tensor_get(o) == first).all() and (tensor_get(x) == first).all()
    kvviz.ggml.run(graph)
    assert (tensor_get(o) == second).all()


def test_a_step_of_adamw_writes_its_moments_too() -> None:
    # given: ggml 0.25.3 leaves 0.2 in m and 0.004 in v of a gradient of 2
    w, grad, m, v = (new_tensor("f32", (4,), name) for name in ("w", "grad", "m", "v"))
    before, step, after = (new_tensor("f32", (4,), name) for name in ("before", "step", "after"))
    before.op, before.src = "SQR", [v]
    step.op, step.src, step.view_src = "OPT_STEP_ADAMW", [w, grad, m, v, new_tensor("f32", (7,), "p")], w
    after.op, after.src = "SQR", [m]
    graph = ComputeGraph("adamw").expand(before).expand(step).expand(after)
    assert [(one.kind, one.root, one.bytes) for one in kvviz.hazards(graph)] == [("WAR", "v", 16), ("RAW", "m", 16)]
    assert graph.trace.steps[1].written == 48
    assert [pair.kind for pair in kvviz.ggml.reorder(graph, [2, 0, 1], run=False).broken] == ["RAW"]
