"""Small graphs of every op that runs here, written once and built both by kvviz and by real ggml."""

from collections.abc import Callable
from typing import Any

import numpy as np

from kvviz.ggml.graph.tensor import UNARY

Build = Callable[[Any], Any]
"""Given a context of either kind, a tensor."""

Case = Callable[[Any], list[Any]]
"""Given a context of either kind, what to expand."""


def numbers(*ne: int, seed: int = 1, largest: float = 3.0) -> np.ndarray:
    """Numbers without a pattern, the same everywhere, exact in f16."""
    count = int(np.prod(ne))
    steps = (np.arange(count, dtype=np.int64) * 7919 + seed * 104729) % 2003 - 1001
    return (steps / 1001 * largest).astype(np.float16).astype(np.float32).reshape(ne[::-1])


def quants() -> np.ndarray:
    """Numbers for blocks of 32: halves of both signs between whole ones, all zero, tiny, and without a pattern."""
    halves = np.concatenate([[127.0], np.arange(31) / 2 - 7.75 + 0.25])
    return np.concatenate([halves, -halves, np.zeros(32), np.full(32, 1e-7), numbers(512, seed=3)]).astype(np.float32)


def tensor(type_: str, *ne: int, name: str = "x", data: Any = 0) -> Build:
    return lambda c: c.new_tensor(type_, *ne, name=name, data=data)


def x(*ne: int, type_: str = "f32", name: str = "x", seed: int = 1, largest: float = 3.0) -> Build:
    return tensor(type_, *ne, name=name, data=numbers(*ne, seed=seed, largest=largest))


def y(*ne: int) -> Build:
    return x(*ne, name="y", seed=2)


def index(type_: str, *rows: int) -> Build:
    return tensor(type_, len(rows), name="rows", data=rows)


def mask(type_: str, depth: float) -> Build:
    return tensor(type_, 16, 5, name="mask", data=np.where(numbers(16, 5, seed=9) > 1, -np.inf, -depth))


def call(op: str, *given: Any) -> Build:
    """An op of these tensors and numbers."""
    return lambda c: getattr(c, op)(*(one(c) if callable(one) else one for one in given))


def case(op: str, *given: Any) -> Case:
    made = call(op, *given)
    return lambda c: [made(c)]


def _chain_of_views(c: Any) -> list[Any]:
    outer = c.view_2d(x(8, 6, name="k")(c), 4, 4, 32, 32)
    inner = c.view_1d(outer, 8, 16)
    far = c.view_3d(x(4, 4, 4, name="v")(c), 2, 2, 3, 32, 64, 8)
    return [c.cont(inner), c.cont(far), c.cont(c.reshape_2d(c.view_1d(x(24, name="w")(c), 12, 32), 4, 3))]


def _transposed_columns(c: Any) -> list[Any]:
    """Transposed V: a column for each token, two writes and two reads of one cache."""
    v = c.new_tensor("f32", 8, 4, name="v_cache")
    first = c.cpy(c.transpose(x(4, 2, name="v_cur")(c)), c.view_2d(v, 2, 4, 32, 12))
    second = c.cpy(x(1, 4, name="v_new", seed=2)(c), c.view_2d(v, 1, 4, 32, 24))
    return [first, second, c.cont(c.view_2d(v, 3, 4, 32, 0)), c.cont(c.view_2d(v, 2, 4, 32, 12))]


def _recurrent_state(c: Any) -> list[Any]:
    """``build_rs`` of llama.cpp: clear a row in place, gather, copy the rest back, all by order only."""
    s = x(4, 6, name="s_state")(c)
    clear = c.scale_inplace(c.view_1d(s, 4, 32), 0.0)
    got = c.get_rows(s, index("i32", 2, 0)(c))
    extra = c.cpy(c.get_rows(s, index("i32", 5)(c)), c.view_2d(s, 4, 1, 16, 64))
    back = c.cpy(c.scale_inplace(got, 2.0), c.view_2d(s, 4, 2, 16, 0))
    return [clear, got, extra, back, c.cont(s)]


def _in_place_after_a_read(c: Any) -> list[Any]:
    s, other = x(4, name="s")(c), y(4)(c)
    return [c.mul(s, other), c.add_inplace(s, other), c.cont(s)]


def _names(c: Any) -> list[Any]:
    nameless = c.cpy(c.new_tensor("f32", 4), c.view_1d(c.new_tensor("f32", 8), 4, 4))
    long = c.cont(c.transpose(x(4, 4, name="n" * 50 + "ü")(c)))
    return [nameless, long, c.cpy(x(4, name="a")(c), c.new_tensor("f32", 4))]


POSITIVE = tensor("f32", 64, data=np.abs(numbers(64)) + 0.125)
POSITIONS = tensor("i32", 4, name="pos", data=[0, 1, 7, 300])
FACTORS = tensor("f32", 8, name="factors", data=np.linspace(1, 4, 8))
CASTS = [("f32", "f16"), ("f16", "f32"), ("q8_0", "f32"), ("f32", "bf16"), ("bf16", "f32")]
FLASH = [("f32", 0.0, 0.0), ("f16", 0.0, 0.0), ("f16", 4.0, 0.0), ("f16", 0.0, 5.0), ("q8_0", 0.0, 0.0)]
OF_TWO = [f"{op}{place}" for op in ("add", "sub", "mul", "div") for place in ("", "_inplace")]
OF_ONE: list[tuple[Any, ...]] = [
    *(("reglu",), ("geglu",), ("swiglu",), ("geglu_erf",), ("geglu_quick",), ("soft_max",), ("soft_max_inplace",)),
    *(("sum",), ("sum_rows",), ("mean",), ("argmax",), ("dup",), ("scale", 1.7), ("scale_inplace", 1.7)),
    *(("scale_bias", 1.7, 0.3), ("clamp", -1.0, 2.0), ("norm", 1e-5), ("rms_norm", 1e-5), ("rms_norm_inplace", 1e-5)),
    *(("fill", 1.5), ("fill_inplace", 1.5), ("cont_2d", 32, 6), ("diag_mask_inf", 2), ("diag_mask_inf_inplace", 2)),
    ("diag_mask_zero", 2),
]
HEADS_FIRST = 0, 2, 1, 3
CASES: dict[str, Case] = {
    **{op: case(op, x(8, 6, 3, 2), y(4, 2, 3, 1)) for op in ("add", "sub", "mul", "div")},
    **{
        op: case(op, x(8, 6, 3, 2), y(4, 2, 3, 1))
        for op in ("add_inplace", "sub_inplace", "mul_inplace", "div_inplace")
    },
    **{op: case(op, POSITIVE) for op in ("sqr", "sqrt", "log", "sin", "cos", "sqrt_inplace")},
    **{f"unary {kind}": case("unary", x(64, largest=11.0), kind) for kind in UNARY if kind != "XIELU"},
    **{op: case(op, x(16, 2), y(16, 2)) for op in ("reglu_split", "geglu_split", "swiglu_split")},
    **{op: case(op, x(8, 6), y(3, 2), 64, 192, 192, 40) for op in ("set", "set_inplace", "acc", "acc_inplace")},
    **{op: case(op, x(64, 3), *numbers_) for op, *numbers_ in OF_ONE},
    "glu swapped": case("glu", x(32, 2), "SWIGLU", True),
    "add1": case("add1", x(8, 2), tensor("f32", 1, name="y", data=3)),
    "set_1d": case("set_1d", x(8, 6), y(5), 40),
    "set_2d_inplace": case("set_2d_inplace", x(8, 6), y(3, 2), 32, 40),
    **{f"cast {source} {target}": case("cast", x(64, 2, type_=source), target) for source, target in CASTS},
    "cast f32 i32": case("cast", tensor("f32", 4, data=[1, -2, 3, 7]), "i32"),
    "cpy f32 q8_0": case("cpy", x(64, 3), call("view_2d", x(64, 6, type_="q8_0", name="k"), 64, 3, 68, 68)),
    "cpy transposed f16": case(
        "cpy", call("transpose", x(8, 6)), call("view_2d", x(16, 8, type_="f16", name="v"), 12, 4, 64, 6)
    ),
    "cont permuted": case("cont", call("permute", x(8, 6, 3, 2), 2, 0, 3, 1)),
    "cont_2d transposed f16": case("cont_2d", call("transpose", x(8, 6, type_="f16")), 4, 12),
    "repeat": case("repeat", x(4, 2, 3), x(8, 6, 3, 2, name="y")),
    "repeat_4d": case("repeat_4d", x(4, 2), 8, 2, 3, 1),
    **{f"concat {dim}": case("concat", x(4, 4), y(4, 4), dim) for dim in (0, 1)},
    **{
        f"set_rows {type_}": case(
            "set_rows", x(64, 6, type_=type_, name="k"), x(64, 3, name="k_cur", seed=2), index("i64", 5, 2, 5)
        )
        for type_ in ("f32", "f16", "bf16", "q8_0")
    },
    "set_rows of several matrices": case(
        "set_rows",
        x(8, 5, 3, 2, type_="f16", name="k"),
        x(8, 2, 3, 2, name="k_cur", seed=2),
        tensor("i32", 2, 1, 2, name="rows", data=[0, 3, 4, 1]),
    ),
    **{
        f"get_rows {type_}": case("get_rows", x(64, 5, type_=type_), index("i32", 3, 3, 0))
        for type_ in ("f32", "f16", "q8_0", "i32")
    },
    "get_rows of several matrices": case(
        "get_rows", x(8, 6, 3), tensor("i32", 2, 3, name="rows", data=[0, 1, 2, 3, 5, 4])
    ),
    **{
        f"mul_mat {type_}": case("mul_mat", x(64, 3, 2, 1, type_=type_), y(64, 2, 4, 2))
        for type_ in ("f32", "f16", "bf16", "q8_0")
    },
    "mul_mat permuted": case(
        "mul_mat_set_prec",
        call(
            "mul_mat",
            call("permute", x(16, 2, 5, type_="f16"), *HEADS_FIRST),
            call("permute", y(16, 4, 3), *HEADS_FIRST),
        ),
    ),
    **{
        f"soft_max_ext {type_} {bias}": case("soft_max_ext", x(16, 5, 6), mask(type_, bias), 0.25, bias)
        for type_ in ("f32", "f16")
        for bias in (0.0, 4.0)
    },
    **{
        f"rope {type_} {mode} {n}": case("rope", x(16, 3, 4, type_=type_), POSITIONS, n, mode)
        for type_ in ("f32", "f16")
        for mode in (0, 2)
        for n in (16, 8)
    },
    "rope_ext yarn": case(
        "rope_ext", x(16, 3, 4), POSITIONS, FACTORS, 16, 2, 4096, 10000.0, 0.25, 1.0, 1.125, 32.0, 1.0
    ),
    **{
        f"flash_attn_ext {type_} {bias} {cap}": case(
            "flash_attn_ext",
            x(32, 5, 4, name="q", seed=0),
            *(x(32, 16, 2, type_=type_, name=name, seed=seed) for seed, name in ((1, "k"), (2, "v"))),
            *(mask("f16", bias), 0.125, bias, cap),
        )
        for type_, bias, cap in FLASH
    },
    "flash_attn_ext of nothing": case(
        "flash_attn_ext",
        x(32, 2, 1, name="q"),
        x(32, 16, 1, name="k"),
        call("cast", x(32, 16, 1, name="v"), "f16"),
        tensor("f16", 16, 2, name="mask", data=-np.inf),
        *(0.125, 0.0, 0.0),
    ),
    "a chain of views": _chain_of_views,
    "transposed columns": _transposed_columns,
    "recurrent state": _recurrent_state,
    "in place after a read": _in_place_after_a_read,
    "names": _names,
}
