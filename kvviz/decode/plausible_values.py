"""Values for missing inputs, chosen by name, by type and by what the graph looks up with them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kvviz.errors import InputError
from kvviz.graph.cache_pairs import logits_output
from kvviz.graph.input_roles import index_range
from kvviz.graph.model import Dim, Graph, Value
from kvviz.runtimes.ort.known_types import known

_LARGEST_TOKEN = 100
_MASK = re.compile(r"mask", re.IGNORECASE)
_POSITIONS = re.compile(r"(^|[._])pos(ition)?s?($|[._])|position", re.IGNORECASE)
_SEGMENTS = re.compile(r"token_type|segment", re.IGNORECASE)
_LENGTHS = re.compile(r"^(.*?)[._]?(len|lens|length|lengths|seqlen|seqlens|num_frames)$", re.IGNORECASE)
_RATES = re.compile(r"^(sr|sample_?rate|sampling_?rate)$", re.IGNORECASE)
_FACTORS = re.compile(r"(^|_)(scales?|speed|temperature|ratio|rate|alpha)$", re.IGNORECASE)
_NOT_A_BATCH = re.compile(r"seq|len|time|frame|step|row|past|token|height|width|channel", re.IGNORECASE)
_SAMPLE_RATE = 16_000
_CHANNELS = (1, 3, 4)


@dataclass(frozen=True, slots=True)
class Scene:
    graph: Graph
    roles: Mapping[str, str]  # control inputs of a decoder, by role
    measured: Mapping[str, int]  # input to the length of its rows, for inputs that have rows


def array(scene: Scene, value: Value, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    dtype = np.dtype(value.dtype)
    if dtype.kind == "O":
        return np.full(shape, "", object)
    if _MASK.search(value.name):
        return np.ones(shape, dtype)
    if dtype.kind == "b":
        return np.zeros(shape, dtype)
    if dtype.kind in "iu":
        return _integers(scene, value, shape, random).astype(dtype)
    if len(shape) <= 1 and _FACTORS.search(value.name):
        return np.ones(shape, dtype)
    return random.standard_normal(shape).astype(dtype)


def shape_of(graph: Graph, name: str) -> tuple[Dim, ...]:
    value = known(graph).types.get(name)
    return () if value is None or value.shape is None else value.shape


def is_data(value: Value) -> bool:
    """Whether an input holds numbers that a model computes with: no mask, no factor and nothing that counts."""
    dtype, rank = np.dtype(value.dtype), len(value.shape or ())
    return dtype.kind not in "biuO" and not _MASK.search(value.name) and not (rank <= 1 and _FACTORS.search(value.name))


def is_batch(value: Value) -> bool:
    """Whether the first dimension of an input is a batch, by its name or, without one, by the rank."""
    dim = (value.shape or (1,))[0]
    if isinstance(dim, int):
        return False
    if dim is None:
        return len(value.shape or ()) >= 2
    if "batch" in dim.lower() or dim in ("N", "B", "b", "bs", "bsz"):
        return True
    return len(value.shape or ()) >= 4 and not _NOT_A_BATCH.search(dim)


def sides(value: Value) -> tuple[int, ...]:
    """Axes of height and width of an input that is a picture: one, three or four channels, before or after them."""
    shape = value.shape or ()
    if len(shape) != 4:
        return ()
    if shape[1] in _CHANNELS:
        return (2, 3)
    return (1, 2) if shape[3] in _CHANNELS else ()


def _integers(scene: Scene, value: Value, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    name = value.name
    bounds = index_range(scene.graph, name, shape_of)
    low, high = (bounds.low, bounds.high) if bounds else (0, None)
    if name == scene.roles.get("tokens"):
        most = _vocabulary(scene.graph) if high is None else high
        return random.integers(low, min(max(_LARGEST_TOKEN, low + 1), most), shape)
    if _SEGMENTS.search(name):
        return np.full(shape, low)
    if _POSITIONS.search(name):
        counted = np.arange(low, low + (shape[-1] if shape else 1))
        return np.broadcast_to(counted if high is None else np.minimum(counted, high - 1), shape or (1,)).reshape(shape)
    if high is not None:
        return random.integers(low, min(high, low + _LARGEST_TOKEN), shape)
    if _RATES.match(name):
        return np.full(shape, _SAMPLE_RATE)
    measure = _LENGTHS.match(name)
    if measure is not None and len(shape) <= 1 and scene.measured:
        return np.full(shape, _measured_by(measure[1], scene.measured))
    pixels = value.dtype == np.uint8 and len(shape) >= 3
    return random.integers(0, 256 if pixels else 2, shape)


def _measured_by(stem: str, measured: Mapping[str, int]) -> int:
    """The length of the input that a name refers to (``audio_length`` of ``audio_signal``), or else of the first."""
    related = [n for n in measured if stem and (n.startswith(stem) or stem.startswith(n))]
    return measured[related[0]] if related else next(iter(measured.values()))


def check_vocabulary(graph: Graph, name: str, tokens: np.ndarray) -> None:
    """Raise `InputError` for a token beyond the end of the embedding that the model looks it up in."""
    bounds = index_range(graph, name, shape_of)
    if bounds is not None and bounds.high is not None and (most := int(tokens.max(initial=0))) >= bounds.high:
        raise InputError(
            f"the token {most} is outside of the model's vocabulary, which has {bounds.high} tokens, from 0 to "
            f"{bounds.high - 1}; a tokenizer of another model gives such tokens, too"
        )


def _vocabulary(graph: Graph) -> int:
    """The upper limit of tokens, also by the declared vocabulary."""
    logits = logits_output(graph)
    shape = next((value.shape for value in graph.outputs if value.name == logits), None)
    last = shape[-1] if shape else None
    return last if isinstance(last, int) and last > 0 else _LARGEST_TOKEN
