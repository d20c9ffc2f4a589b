"""The graphs of ggml discussion 1314, as the recordings' own script built them with real ggml."""

from collections.abc import Callable
from typing import NamedTuple

from kvviz.ggml.graph.compute_graph import ComputeGraph
from kvviz.ggml.graph.context import Context
from kvviz.ggml.graph.tensor import COMPUTE, Tensor, new_tensor


def leaf(name: str, *ne: int, type_: str = "f32", role: str = "", flags: int = 0) -> Tensor:
    """A tensor that no op makes."""
    tensor = new_tensor(type_, ne, name)
    tensor.role, tensor.flags = role, flags
    return tensor


def op(name: str, kind: str, *src: Tensor, ne: tuple[int, ...] = (256,), view_of: Tensor | None = None) -> Tensor:
    """A node as a context would leave it, with nothing checked."""
    tensor = new_tensor("f32", ne, name)
    tensor.op, tensor.src, tensor.view_src, tensor.flags = kind, list(src), view_of, COMPUTE
    return tensor


class Seed(NamedTuple):
    """A graph, and the tensors whose numbers were recorded after it had run."""

    graph: ComputeGraph
    results: dict[str, Tensor]


def kv(
    read_first: bool = False, rows: bool = False, written: bool = True, old: bool = False, name: str = "k_cache"
) -> Seed:
    """A write into a cache of 8 cells, and a read of all of it."""
    ctx = Context(set_rows_destination=not old)
    k = ctx.new_tensor("f32", 4, 8, name=name, role="state")
    k_cur = ctx.new_tensor("f32", 4, 2, name="k_cur", data=[1] * 4 + [2] * 4)
    q = ctx.new_tensor("f32", 4, 1, name="q", data=1)
    if rows:
        write = ctx.set_rows(k, k_cur, ctx.new_tensor("i64", 2, name="k_idxs", data=[3, 4]))
    else:
        write = ctx.cpy(k_cur, ctx.set_name(ctx.view_2d(k, 4, 2, 16, 48), "k_write_view"))
    ctx.set_name(write, "k_write")
    kq = ctx.set_name(ctx.mul_mat(ctx.set_name(ctx.view_2d(k, 4, 8, 16, 0), "k_read_view"), q), "kq")
    graph = ctx.new_graph("seed")
    for tensor in [write, kq][:: -1 if read_first else 1] if written else [kq]:
        graph.expand(tensor)
    return Seed(graph, {"kq": kq, "k_cache": k})


def inplace_chain() -> Seed:
    """The last op reads what was overwritten by way of its first name."""
    ctx = Context()
    x, y = ctx.new_tensor("f32", 4, name="x", data=3), ctx.new_tensor("f32", 4, name="y", data=1)
    a = ctx.set_name(ctx.add(x, y), "a")
    b = ctx.set_name(ctx.scale_inplace(a, 10.0), "b")
    c = ctx.set_name(ctx.add(b, y), "c")
    d = ctx.set_name(ctx.mul(a, c), "d")
    return Seed(ctx.new_graph().expand(d), {"a": a, "b": b, "c": c, "d": d})


def cast_shift() -> Seed:
    """A shift of a cache: cast, change, copy back."""
    ctx = Context()
    k = ctx.new_tensor("f16", 4, 4, name="k16", data=1, role="state")
    wide = ctx.cast(ctx.set_name(ctx.view_2d(k, 4, 2, 8, 8), "k16_rows_1_2"), "f32")
    scaled = ctx.set_name(ctx.scale_inplace(ctx.set_name(wide, "k32"), 3.0), "k32_scaled")
    write = ctx.set_name(ctx.cpy(scaled, ctx.set_name(ctx.view_2d(k, 4, 2, 8, 8), "k16_dst")), "k16_write")
    out = ctx.set_name(ctx.cast(ctx.set_name(ctx.view_2d(k, 4, 4, 8, 0), "k16_all"), "f32"), "out")
    return Seed(ctx.new_graph().expand(write).expand(out), {"out": out})


SEEDS: dict[str, Callable[[], Seed]] = {
    "seed_write_first": kv,
    "seed_read_first": lambda: kv(read_first=True),
    "seed_set_rows": lambda: kv(rows=True),
    "seed_never_expanded": lambda: kv(written=False),
    "old_seed_set_rows": lambda: kv(rows=True, old=True),
    "inplace_chain": inplace_chain,
    "cast_shift": cast_shift,
}
