"""Small graphs of every op that runs here, written once and built both by kvviz and by real ggml."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from kvviz.ggml.graph.tensor import UNARY

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


def _x(c: Any, *ne: int, type_: str = "f32", name: str = "x", seed: int = 1, largest: float = 3.0) -> Any:
    return c.new_tensor(type_, *ne, name=name, data=numbers(*ne, seed=seed, largest=largest))


def _y(c: Any, *ne: int) -> Any:
    return _x(c, *ne, name="y", seed=2)


def _index(c: Any, type_: str, *rows: int) -> Any:
    return c.new_tensor(type_, len(rows), name="rows", data=rows)


def _mask(type_: str, c: Any, rows: int = 5, keys: int = 16, depth: float = 0.0) -> Any:
    hidden = numbers(keys, rows, seed=9) > 1
    return c.new_tensor(type_, keys, rows, name="mask", data=np.where(hidden, -np.inf, depth))


def _two(op: str, c: Any) -> list[Any]:
    return [getattr(c, op)(_x(c, 8, 6, 3, 2), _y(c, 4, 2, 3, 1))]


def _one(op: str, c: Any, args: tuple[Any, ...] = ()) -> list[Any]:
    return [getattr(c, op)(_x(c, 64, 3), *args)]


def _positive(op: str, c: Any) -> list[Any]:
    return [getattr(c, op)(c.new_tensor("f32", 64, name="x", data=np.abs(numbers(64)) + 0.125))]


def _unary(kind: str, c: Any) -> list[Any]:
    return [c.unary(_x(c, 64, largest=11.0), kind)]


def _split(op: str, c: Any) -> list[Any]:
    return [getattr(c, op)(_x(c, 16, 2), _y(c, 16, 2))]


def _patch(op: str, c: Any) -> list[Any]:
    return [getattr(c, op)(_x(c, 8, 6), _x(c, 3, 2, name="y", seed=2), 64, 192, 192, 40)]


def _concat(dim: int, c: Any) -> list[Any]:
    return [c.concat(_x(c, 4, 4), _y(c, 4, 4), dim)]


def _cast(source: str, target: str, c: Any) -> list[Any]:
    return [c.cast(_x(c, 64, 2, type_=source), target)]


def _set_rows(type_: str, c: Any) -> list[Any]:
    rows = _index(c, "i64", 5, 2, 5)
    return [c.set_rows(_x(c, 64, 6, type_=type_, name="k"), _x(c, 64, 3, name="k_cur", seed=2), rows)]


def _set_rows_of_matrices(c: Any) -> list[Any]:
    rows = c.new_tensor("i32", 2, 1, 2, name="rows", data=[0, 3, 4, 1])
    return [c.set_rows(_x(c, 8, 5, 3, 2, type_="f16", name="k"), _x(c, 8, 2, 3, 2, name="k_cur", seed=2), rows)]


def _get_rows(type_: str, c: Any) -> list[Any]:
    return [c.get_rows(_x(c, 64, 5, type_=type_), _index(c, "i32", 3, 3, 0))]


def _mul_mat(type_: str, c: Any) -> list[Any]:
    return [c.mul_mat(_x(c, 64, 3, 2, 1, type_=type_), _y(c, 64, 2, 4, 2))]


def _permuted(c: Any) -> list[Any]:
    both = (c.permute(one, 0, 2, 1, 3) for one in (_x(c, 16, 2, 5, type_="f16"), _y(c, 16, 4, 3)))
    return [c.mul_mat_set_prec(c.mul_mat(*both))]


def _soft_max(type_: str, max_bias: float, c: Any) -> list[Any]:
    return [c.soft_max_ext(_x(c, 16, 5, 6), _mask(type_, c, depth=-max_bias), 0.25, max_bias)]


def _rope(type_: str, mode: int, n_dims: int, c: Any) -> list[Any]:
    where = c.new_tensor("i32", 4, name="pos", data=[0, 1, 7, 300])
    return [c.rope(_x(c, 16, 3, 4, type_=type_), where, n_dims, mode)]


def _yarn(c: Any) -> list[Any]:
    where = c.new_tensor("i32", 4, name="pos", data=[0, 1, 7, 300])
    factors = c.new_tensor("f32", 8, name="factors", data=np.linspace(1, 4, 8))
    return [c.rope_ext(_x(c, 16, 3, 4), where, factors, 16, 2, 4096, 10000.0, 0.25, 1.0, 1.125, 32.0, 1.0)]


def _flash(type_: str, max_bias: float, softcap: float, c: Any) -> list[Any]:
    q, k, v = (
        _x(c, 32, n, heads, type_=kind, name=name, seed=seed)
        for seed, (name, n, heads, kind) in enumerate((("q", 5, 4, "f32"), ("k", 16, 2, type_), ("v", 16, 2, type_)))
    )
    return [c.flash_attn_ext(q, k, v, _mask("f16", c, depth=-max_bias), 0.125, max_bias, softcap)]


def _flash_of_nothing(c: Any) -> list[Any]:
    q, k, v = (_x(c, 32, n, 1, name=name) for name, n in (("q", 2), ("k", 16), ("v", 16)))
    nothing = c.new_tensor("f16", 16, 2, name="mask", data=-np.inf)
    return [c.flash_attn_ext(q, k, c.cast(v, "f16"), nothing, 0.125, 0.0, 0.0)]


def _chain_of_views(c: Any) -> list[Any]:
    outer = c.view_2d(_x(c, 8, 6, name="k"), 4, 4, 32, 32)
    inner = c.view_1d(outer, 8, 16)
    far = c.view_3d(_x(c, 4, 4, 4, name="v"), 2, 2, 3, 32, 64, 8)
    return [c.cont(inner), c.cont(far), c.cont(c.reshape_2d(c.view_1d(_x(c, 24, name="w"), 12, 32), 4, 3))]


def _transposed_columns(c: Any) -> list[Any]:
    """Transposed V: a column for each token, two writes and two reads of one cache."""
    v = c.new_tensor("f32", 8, 4, name="v_cache")
    first = c.cpy(c.transpose(_x(c, 4, 2, name="v_cur")), c.view_2d(v, 2, 4, 32, 12))
    second = c.cpy(_x(c, 1, 4, name="v_new", seed=2), c.view_2d(v, 1, 4, 32, 24))
    return [first, second, c.cont(c.view_2d(v, 3, 4, 32, 0)), c.cont(c.view_2d(v, 2, 4, 32, 12))]


def _recurrent_state(c: Any) -> list[Any]:
    """``build_rs`` of llama.cpp: clear a row in place, gather, copy the rest back, all by order only."""
    s = _x(c, 4, 6, name="s_state")
    clear = c.scale_inplace(c.view_1d(s, 4, 32), 0.0)
    got = c.get_rows(s, _index(c, "i32", 2, 0))
    extra = c.cpy(c.get_rows(s, _index(c, "i32", 5)), c.view_2d(s, 4, 1, 16, 64))
    back = c.cpy(c.scale_inplace(got, 2.0), c.view_2d(s, 4, 2, 16, 0))
    return [clear, got, extra, back, c.cont(s)]


def _in_place_after_a_read(c: Any) -> list[Any]:
    s, y = _x(c, 4, name="s"), _y(c, 4)
    return [c.mul(s, y), c.add_inplace(s, y), c.cont(s)]


def _names(c: Any) -> list[Any]:
    nameless = c.cpy(c.new_tensor("f32", 4), c.view_1d(c.new_tensor("f32", 8), 4, 4))
    long = c.cont(c.transpose(_x(c, 4, 4, name="n" * 50 + "ü")))
    return [nameless, long, c.cpy(_x(c, 4, name="a"), c.new_tensor("f32", 4))]


FLASH = [("f32", 0.0, 0.0), ("f16", 0.0, 0.0), ("f16", 4.0, 0.0), ("f16", 0.0, 5.0), ("q8_0", 0.0, 0.0)]
WITH_NUMBERS: list[tuple[Any, ...]] = [
    *(("scale", 1.7), ("scale_inplace", 1.7), ("scale_bias", 1.7, 0.3), ("clamp", -1.0, 2.0), ("norm", 1e-5)),
    *(("rms_norm", 1e-5), ("rms_norm_inplace", 1e-5), ("fill", 1.5), ("fill_inplace", 1.5), ("cont_2d", 32, 6)),
    *(("diag_mask_inf", 2), ("diag_mask_inf_inplace", 2), ("diag_mask_zero", 2)),
]
CASES: dict[str, Case] = {
    **{op + place: partial(_two, op + place) for op in ("add", "sub", "mul", "div") for place in ("", "_inplace")},
    **{op: partial(_positive, op) for op in ("sqr", "sqrt", "log", "sin", "cos", "sqrt_inplace")},
    **{f"unary {kind}": partial(_unary, kind) for kind in UNARY if kind != "XIELU"},
    **{op: partial(_one, op) for op in ("reglu", "geglu", "swiglu", "geglu_erf", "geglu_quick")},
    **{f"{op}_split": partial(_split, f"{op}_split") for op in ("reglu", "geglu", "swiglu")},
    **{op: partial(_patch, op) for op in ("set", "set_inplace", "acc", "acc_inplace")},
    **{op: partial(_one, op) for op in ("soft_max", "soft_max_inplace", "sum", "sum_rows", "mean", "argmax", "dup")},
    **{op: partial(_one, op, args=tuple(args)) for op, *args in WITH_NUMBERS},
    "glu swapped": lambda c: [c.glu(_x(c, 32, 2), "SWIGLU", True)],
    "add1": lambda c: [c.add1(_x(c, 8, 2), c.new_tensor("f32", 1, name="y", data=3))],
    "set_1d": lambda c: [c.set_1d(_x(c, 8, 6), _y(c, 5), 40)],
    "set_2d_inplace": lambda c: [c.set_2d_inplace(_x(c, 8, 6), _x(c, 3, 2, name="y", seed=2), 32, 40)],
    **{
        f"cast {source} {target}": partial(_cast, source, target)
        for source, target in (("f32", "f16"), ("f16", "f32"), ("q8_0", "f32"), ("f32", "bf16"), ("bf16", "f32"))
    },
    "cast f32 i32": lambda c: [c.cast(c.new_tensor("f32", 4, name="x", data=[1, -2, 3, 7]), "i32")],
    "cpy f32 q8_0": lambda c: [c.cpy(_x(c, 64, 3), c.view_2d(_x(c, 64, 6, type_="q8_0", name="k"), 64, 3, 68, 68))],
    "cpy transposed f16": lambda c: [
        c.cpy(c.transpose(_x(c, 8, 6)), c.view_2d(_x(c, 16, 8, type_="f16", name="v"), 12, 4, 64, 6))
    ],
    "cont permuted": lambda c: [c.cont(c.permute(_x(c, 8, 6, 3, 2), 2, 0, 3, 1))],
    "cont_2d transposed f16": lambda c: [c.cont_2d(c.transpose(_x(c, 8, 6, type_="f16")), 4, 12)],
    "repeat": lambda c: [c.repeat(_x(c, 4, 2, 3), _x(c, 8, 6, 3, 2, name="y"))],
    "repeat_4d": lambda c: [c.repeat_4d(_x(c, 4, 2), 8, 2, 3, 1)],
    **{f"concat {dim}": partial(_concat, dim) for dim in (0, 1)},
    **{f"set_rows {type_}": partial(_set_rows, type_) for type_ in ("f32", "f16", "bf16", "q8_0")},
    "set_rows of several matrices": _set_rows_of_matrices,
    **{f"get_rows {type_}": partial(_get_rows, type_) for type_ in ("f32", "f16", "q8_0", "i32")},
    "get_rows of several matrices": lambda c: [
        c.get_rows(_x(c, 8, 6, 3), c.new_tensor("i32", 2, 3, name="rows", data=[0, 1, 2, 3, 5, 4]))
    ],
    **{f"mul_mat {type_}": partial(_mul_mat, type_) for type_ in ("f32", "f16", "bf16", "q8_0")},
    "mul_mat permuted": _permuted,
    **{f"soft_max_ext {t} {bias}": partial(_soft_max, t, bias) for t in ("f32", "f16") for bias in (0.0, 4.0)},
    **{f"rope {t} {mode} {n}": partial(_rope, t, mode, n) for t in ("f32", "f16") for mode in (0, 2) for n in (16, 8)},
    "rope_ext yarn": _yarn,
    **{f"flash_attn_ext {type_} {bias} {cap}": partial(_flash, type_, bias, cap) for type_, bias, cap in FLASH},
    "flash_attn_ext of nothing": _flash_of_nothing,
    "a chain of views": _chain_of_views,
    "transposed columns": _transposed_columns,
    "recurrent state": _recurrent_state,
    "in place after a read": _in_place_after_a_read,
    "names": _names,
}
