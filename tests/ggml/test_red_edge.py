"""A write into a view and a read through another one: nothing but the order of the list keeps them in order.

Expected values: ggml run on the CPU with these graphs (ggml discussion 1314).
"""

from __future__ import annotations

import pytest

import kvviz
from kvviz.ggml.compute_graph import ComputeGraph
from kvviz.ggml.graph_trace import to_trace
from kvviz.ggml.tensor import Tensor, new_tensor
from kvviz.trace.recording import Trace


def _view(root: Tensor, rows: int, offset: int) -> Tensor:
    ne = (root.ne[0], rows, 1, 1)
    nb = (*root.nb[:2], root.nb[1] * rows, root.nb[1] * rows)
    return Tensor(f"{root.name} (view)", root.type, ne, nb, "VIEW", src=[root], view_src=root, view_offs=offset)


def _seed(reader_first: bool) -> tuple[ComputeGraph, Trace]:
    cache, row, query = (new_tensor("f32", ne, name) for ne, name in (((4, 8), "k"), ((4, 2), "k_cur"), ((4, 1), "q")))
    cache.role = "state"
    into = _view(cache, 2, 48)
    write = Tensor("write", "f32", into.ne, into.nb, "CPY", src=[row, into], view_src=cache, view_offs=48)
    read = new_tensor("f32", (8, 1), "kq")
    read.op, read.src = "MUL_MAT", [_view(cache, 8, 0), query]
    graph = ComputeGraph("seed")
    for tensor in (read, write) if reader_first else (write, read):
        graph.expand(tensor)
    return graph, to_trace([graph], "seed")


def test_what_is_expanded_first_is_executed_first() -> None:
    assert [node.op for node in _seed(False)[0].nodes] == ["VIEW", "CPY", "VIEW", "MUL_MAT"]
    assert [node.op for node in _seed(True)[0].nodes] == ["VIEW", "MUL_MAT", "VIEW", "CPY"]


@pytest.mark.parametrize(("level", "shared"), [("root", 128), ("range", 32), ("exact", 32)])
def test_a_read_behind_a_write_is_a_hidden_dependency_at_every_precision(level: str, shared: int) -> None:
    (found,) = kvviz.hazards(_seed(False)[1], level=level)  # type: ignore[arg-type]
    assert (found.kind, found.first, found.second, found.bytes, found.root) == ("RAW", 1, 3, shared, "k")
    assert not found.ordered and not found.broken


def test_in_the_other_order_the_write_comes_behind_the_read() -> None:
    (found,) = kvviz.hazards(_seed(True)[1])
    assert (found.kind, found.first, found.second) == ("WAR", 1, 3)
