"""A form: which operators keep the cache and attend to it. Also what all forms compute once for all layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kvviz.smollm2.builder import Builder
from kvviz.smollm2.checkpoint import Shape

Shared = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Form:
    """One way to write the decoder.

    ``prepare(build, shape)`` adds what all layers share, and gives its values. ``norm(build, x, rest, weight,
    epsilon)`` adds an RMS norm of ``x``, or of ``x + rest`` where ``rest`` is not empty, and gives the normed values
    and what they are the norm of. ``attend(build, shape, layer, projected, shared)`` adds rotary embedding, cache and
    attention to queries, keys and values of shape ``(batch, new, heads·size)``, and gives the shape of the queries
    back.
    """

    name: str
    opset: int
    ir_version: int
    inputs: tuple[str, ...]  # those that are no caches
    prepare: Callable[[Builder, Shape], Shared]
    norm: Callable[[Builder, str, str, str, float], tuple[str, str]]
    attend: Callable[[Builder, Shape, int, tuple[str, ...], Shared], str]
    microsoft: bool = False  # it uses operators of onnxruntime
    packed: bool = False  # queries, keys and values are projected by one product and stay side by side
    adds_in_norm: bool = False  # residual sums are left to the norm after them


def caches(layer: int) -> tuple[tuple[str, str], tuple[str, str]]:
    """Names of a layer's pasts and presents."""
    kinds = ("key", "value")
    past, present = (tuple(f"{name}.{layer}.{kind}" for kind in kinds) for name in ("past_key_values", "present"))
    return (past[0], past[1]), (present[0], present[1])


def mask_bias(build: Builder) -> str:
    """Add what hides keys: 0 where a query may look and the lowest float32 elsewhere, ``(batch, 1, new, total)``. A
    query sees the tokens up to its own that the mask does not call padding. Not minus infinity: the rows of padding see
    nothing, and would be NaN."""
    build.scope = "/model/mask"
    total = build.op("Squeeze", build.op("Shape", "attention_mask", start=1, end=2))
    past = build.op("Shape", caches(0)[0][0], start=2, end=3)
    zero, one = build.constant("zero", np.int64(0)), build.constant("one", np.int64(1))
    columns = build.op("Range", zero, total, one)
    rows = build.op("Slice", columns, past, build.ints(2**62), build.ints(0))
    causal = build.op("LessOrEqual", columns, build.op("Unsqueeze", rows, build.ints(1)))
    real = build.op("Unsqueeze", build.op("Cast", "attention_mask", to=9), build.ints(1, 2))
    seen = build.op("And", real, causal)
    return build.op(
        "Where",
        seen,
        build.constant("shown", np.float32(0)),
        build.constant("hidden", np.finfo(np.float32).min),
    )


def rotary_tables(shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines of all positions, float32 ``(positions, head size / 2)``, computed in float64."""
    speeds = shape.theta ** (-np.arange(0, shape.head, 2) / shape.head)
    angles = np.arange(shape.positions)[:, None] * speeds
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
