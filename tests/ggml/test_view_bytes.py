"""Bytes of views of ggml tensors, element by element: transposed, permuted, of blocks, and rows of them."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kvviz.ggml.graph.op_effects import Effect
from kvviz.ggml.graph.tensor import Tensor, new_tensor, type_size
from kvviz.trace.schema.regions import bounds, overlap

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
