"""Shapes of published decoders, as far as a KV cache and the weights follow from them.

The sizes are those of `kvviz.shapes.presets`, with their sources. The number of parameters follows from the shape, and
is that of the published weight files.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from kvviz.errors import KvvizError
from kvviz.shapes.presets import PRESETS

_COUNTS = ("layers", "hidden", "heads", "kv_heads", "head_size", "intermediate", "vocabulary", "context")


def positive(name: str, value: Any) -> int:
    """A count as a plain int, which does not overflow.

    Raises `KvvizError`: if it is no whole number from 1 on.
    """
    try:
        count = 0 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        count = 0
    if count < 1:
        raise KvvizError(f"{name} is {value!r}; it must be a whole number, 1 or more")
    return count


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A decoder of the Llama family: grouped-query attention, a gated MLP of three matrices, RMSNorm.

    Attributes
    ----------
    name : str
    layers : int
    hidden : int
        Width of the residual stream.
    heads, kv_heads, head_size : int
        Query heads, key and value heads, elements of a head.
    intermediate : int
        Width inside the MLP.
    vocabulary : int
    context : int
        Longest sequence that it was made for.
    tied : bool
        The output matrix is that of the embeddings.
    biased : bool
        Queries, keys and values have biases.
    window : int or None
        Window of sliding-window attention: at most this many rows are read.
    dtype : str
        Element type of the published weights.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    intermediate: int
    vocabulary: int
    context: int
    tied: bool = False
    biased: bool = False
    window: int | None = None
    dtype: str = "bfloat16"

    def __post_init__(self) -> None:
        for name in _COUNTS:
            object.__setattr__(self, name, positive(name, getattr(self, name)))
        if self.window is not None:
            object.__setattr__(self, "window", positive("window", self.window))
        if self.heads % self.kv_heads:
            raise KvvizError(f"{self.heads} query heads cannot share {self.kv_heads} KV heads evenly")

    @property
    def parameters(self) -> int:
        """Number of weights."""
        queries, keys = self.heads * self.head_size, self.kv_heads * self.head_size
        attention = 2 * self.hidden * queries + 2 * self.hidden * keys + self.biased * (queries + 2 * keys)
        layer = attention + 3 * self.hidden * self.intermediate + 2 * self.hidden
        return self.layers * layer + self.hidden + self.vocabulary * self.hidden * (1 if self.tied else 2)

    @property
    def parameters_read(self) -> int:
        """Weights that a decode step reads: of embeddings that are not the output matrix as well it looks one up."""
        return self.parameters - (0 if self.tied else self.vocabulary * self.hidden)


_FLOAT16 = {"Llama-2-7B", "Llama-2-13B", "Llama-2-70B"}  # published as float16
_NAMES = (
    *("SmolLM2-135M", "Qwen2.5-0.5B", "TinyLlama-1.1B", "Llama-2-7B", "Llama-2-13B", "Llama-2-70B", "Mistral-7B"),
    *("Llama-3-8B", "Llama-3-70B", "Llama-3.1-8B", "Llama-3.1-70B", "Llama-3.1-405B"),
)


def _published(name: str) -> ModelShape:
    """A decoder whose sizes `kvviz.shapes` has."""
    size = PRESETS[name.lower()]
    return ModelShape(
        *(name, size.layers, size.hidden, size.heads, size.kv_heads, size.head, size.inner, size.vocabulary),
        context=size.positions,
        tied=size.tied,
        biased=size.biased,
        window=size.window or None,
        dtype="float16" if name in _FLOAT16 else "bfloat16",
    )


_ALL = (
    ModelShape("storyteller", 3, 64, 4, 2, 16, 160, 128, 160, dtype="float32"),
    *map(_published, _NAMES),
)
MODELS: Mapping[str, ModelShape] = MappingProxyType({shape.name: shape for shape in _ALL})
"""The known models by name."""


def model_shape(name: str) -> ModelShape:
    """A known model by its name, in any case.

    Raises `KvvizError`: if it is not known; the message names what is near.
    """
    if not isinstance(name, str):
        raise KvvizError(f"a model is named by a text, or is a ModelShape, not {name!r}")
    names = {known.lower(): known for known in MODELS}
    if name.lower() in names:
        return MODELS[names[name.lower()]]
    near = get_close_matches(name.lower(), list(names), 2)
    hint = f"did you mean {' or '.join(names[one] for one in near)}?" if near else f"known are {', '.join(MODELS)}"
    raise KvvizError(f"there is no model {name!r} here: {hint}")
