"""Decoders of published sizes as graphs without weights, for `kvviz.dry`: their cost follows from their shapes.

>>> graph = kvviz.shapes.preset("llama-3-70b", form="gqa")
>>> kvviz.dry(graph, prompt_tokens=2048, max_new_tokens=8).peak_bytes

The sizes are in ``shapes.json``. Their sources: the ``config.json`` beside each model's weights on Hugging Face
(``num_hidden_layers``, ``hidden_size``, ``intermediate_size``, ``vocab_size``, ``num_attention_heads``, ``head_dim``,
``num_key_value_heads``, ``max_position_embeddings``, ``rope_theta``, ``rms_norm_eps``, ``tie_word_embeddings``,
``sliding_window``): meta-llama, HuggingFaceTB (SmolLM2), TinyLlama, Qwen, mistralai (Mistral-7B-v0.1), google (Gemma),
deepseek-ai, openai (Whisper).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import DTypeLike
from onnx import TensorProto, helper

from kvviz.decoders.builder import Held
from kvviz.decoders.decoder import decoder
from kvviz.decoders.decoder_shape import Experts, Latent, Shape
from kvviz.decoders.operator_forms import FORMS
from kvviz.errors import InputError
from kvviz.graph.loading.load import assembled
from kvviz.graph.loading.tensors import Nowhere
from kvviz.graph.model import Graph

__all__ = ["FORMS", "PRESETS", "Experts", "Latent", "Shape", "llama", "preset"]

_PARTS: dict[str, Callable[..., Any]] = {"latent": Latent, "experts": Experts}


def _shape(sizes: Mapping[str, Any]) -> Shape:
    return Shape(**{name: _PARTS[name](**size) if name in _PARTS else size for name, size in sizes.items()})


PRESETS: Mapping[str, Shape] = MappingProxyType(
    {name: _shape(sizes) for name, sizes in json.loads(Path(__file__).with_suffix(".json").read_text("utf-8")).items()}
)
"""Sizes by name."""


def llama(
    layers: int = 32,
    hidden: int = 4096,
    heads: int = 32,
    kv_heads: int | None = None,
    *,
    inner: int | None = None,
    vocabulary: int = 128256,
    head: int | None = None,
    positions: int = 131072,
    tied: bool = False,
    form: str = "concat",
    dtype: DTypeLike = "float16",
    name: str = "llama",
) -> Graph:
    """A decoder of the Llama family without weights.

    Parameters
    ----------
    layers, hidden, heads : int
        Number of layers, width of the residual stream, query heads.
    kv_heads : int, optional
        Key heads; as many as query heads by default.
    inner : int, optional
        Width of the feed-forward part; 3.5 × ``hidden`` by default.
    vocabulary, head, positions : int
        Number of tokens, size of a head (``hidden / heads`` by default), longest context.
    tied : bool
        The head uses the embedding's weights.
    form, dtype
        As in `preset`.
    name : str
        Of the graph.

    Returns
    -------
    Graph
        For `kvviz.dry`. Running it with numbers raises `LoadError`.

    Raises
    ------
    InputError
        There is no such form, or the sizes do not fit together.

    Examples
    --------
    >>> graph = kvviz.shapes.llama(layers=80, hidden=8192, heads=64, kv_heads=8, form="gqa")
    """
    size = Shape(
        layers,
        hidden,
        hidden * 7 // 2 if inner is None else inner,
        vocabulary,
        heads,
        heads if kv_heads is None else kv_heads,
        hidden // max(heads, 1) if head is None else head,
        positions,
        5e5,
        1e-5,
        tied,
    )
    return _graph(size, form, dtype, name, None)


def preset(
    name: str, *, form: str = "concat", dtype: DTypeLike = "float16", seed: int | None = None, **sizes: Any
) -> Graph:
    """A decoder of a published size without weights.

    Parameters
    ----------
    name : str
        One of ``kvviz.shapes.PRESETS``: Llama, SmolLM2, Qwen, Mistral, Gemma, DeepSeek, the decoder of Whisper.
    form : str
        How the cache is kept. It grows in ``"concat"`` (elementary operators, opset 18), ``"merged"`` (``"concat"`` in
        one branch of an If, the prompt alone in the other), ``"attention"`` (inside of Attention, opset 23) and
        ``"gqa"`` (inside of onnxruntime's GroupQueryAttention; not DeepSeek, Whisper). It has a fixed number of rows,
        ``kv_capacity`` or as many as the decode needs, in ``"static"`` (TensorScatter in front of Attention, opset 24)
        and ``"scatter_nd"`` (elementary operators, opset 18).
    dtype : dtype
        Of weights, caches and activations.
    seed : int, optional
        Use small random weights from this seed, so that the graph also runs with numbers. For small sizes.
    **sizes
        Fields of `kvviz.shapes.Shape` that differ from the published ones, such as ``layers=2``.

    Returns
    -------
    Graph
        For `kvviz.dry`. Running it with numbers raises `LoadError`, unless ``seed`` is given.

    Raises
    ------
    InputError
        There is no model of that name, no such form for it, or the sizes do not fit together.

    Notes
    -----
    Only memory use is faithful: numbers differ from the published model where positions are scaled (Llama 3.1,
    DeepSeek) or a router is limited to groups of experts. The graph computes all of DeepSeek's experts, as ONNX has no
    operator to choose among them, so activations of a long chunk are larger than with chosen experts only. Whisper's
    encoder keys and values are inputs that no run changes; the products that make them belong to the encoder.

    Examples
    --------
    >>> graph = kvviz.shapes.preset("llama-3-70b", form="gqa")
    >>> tiny = kvviz.shapes.preset("gemma-2-2b", seed=0, layers=2, hidden=64, inner=96, vocabulary=100, head=16)
    """
    size = PRESETS.get(name)
    if size is None:
        raise InputError(f"no sizes are known of {name!r}; there are {', '.join(PRESETS)}")
    unknown = sizes.keys() - {field.name for field in fields(Shape)}
    if unknown:
        known = ", ".join(field.name for field in fields(Shape))
        raise InputError(f"a shape has no {', '.join(sorted(unknown))}; it has {known}")
    return _graph(replace(size, **sizes), form, dtype, name, seed)


def _graph(size: Shape, form: str, dtype: DTypeLike, name: str, seed: int | None) -> Graph:
    _check(size, form, name)
    kind = helper.tensor_dtype_to_np_dtype(_code(dtype))
    source = Sizes(size, kind, None if seed is None else np.random.default_rng(seed))
    store = Held(Nowhere(name) if seed is None else None)
    proto = decoder(source, FORMS[form], store, kind, name)
    return assembled(proto, store.arrays, f"the shapes of {name}", name)


def _check(size: Shape, form: str, name: str) -> None:
    if form not in FORMS:
        raise InputError(f"there is no form {form!r}; there are {', '.join(FORMS)}")
    if form == "gqa" and (size.latent or size.encoder_rows):
        why = "caches keys and values of one size" if size.latent else "has no attention to the rows of an encoder"
        raise InputError(f"GroupQueryAttention {why}, so {name} has no form 'gqa'; choose another")
    counts = (size.layers, size.hidden, size.inner, size.vocabulary, size.heads, size.kv_heads, size.head)
    if min(*counts, size.positions) < 1:
        raise InputError(
            f"layers, widths, heads, vocabulary and positions must be 1 or more, not {min(*counts, size.positions)}"
        )
    if size.heads % size.kv_heads or size.rotary % 2:
        raise InputError(
            f"{size.heads} heads of {size.rotary} for {size.kv_heads} key heads do not go together: "
            "the number of heads must be a multiple of the key heads, and their size even"
        )


def _code(dtype: DTypeLike) -> int:
    """The ONNX element type of a dtype or of a name that NumPy does not know (``"bfloat16"``)."""
    if isinstance(dtype, str) and dtype.upper() in dict(TensorProto.DataType.items()):
        return int(TensorProto.DataType.Value(dtype.upper()))
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


# Weights that have only a shape and a type, or that are random.


@dataclass(frozen=True, slots=True)
class Sizes:
    """A source of weights without contents, or, with ``random``, of small random weights."""

    shape: Shape
    dtype: np.dtype
    random: np.random.Generator | None = None

    def tensor(self, name: str, *shape: int) -> np.ndarray:
        if self.random is None:
            return np.broadcast_to(np.empty((), self.dtype), shape)
        # The weights of norms are close to one, so that activations keep their magnitude.
        small = self.random.standard_normal(shape) * (shape[-2] if len(shape) > 1 else 100) ** -0.5
        return (small + ("norm" in name and "bias" not in name)).astype(self.dtype)

    def matrix(self, name: str, inputs: int, outputs: int, turned_heads: int = 0) -> np.ndarray:
        return self.tensor(name, inputs, outputs)

    def joined(self, weights: list[np.ndarray]) -> np.ndarray:
        if self.random is None:
            return self.tensor("", *weights[0].shape[:-1], sum(weight.shape[-1] for weight in weights))
        return np.concatenate(weights, axis=-1)

    def finish(self) -> None: ...
