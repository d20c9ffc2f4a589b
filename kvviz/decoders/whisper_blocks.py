"""Blocks of Whisper's decoder, with biases: self-attention, attention to the encoder's rows, and GELU."""

from __future__ import annotations

from kvviz.decoders.parts import Parts


def plain_attention(parts: Parts, layer: int, x: str) -> str:
    projected = tuple(_square(parts, layer, x, "attn", name, biased=name != "k") for name in "qkv")
    return _square(parts, layer, parts.form.attend(layer, projected), "attn", "out")


def cross_attention(parts: Parts, layer: int, x: str) -> str:
    """Attention to the encoder's keys and values, which are inputs that no run changes."""
    shape, form = parts.shape, parts.form
    q = _square(parts, layer, x, "cross_attn", "q")
    keys, values = (
        form.given(layer, f"encoder.{kind}", shape.encoder_rows, shape.heads, shape.head) for kind in ("key", "value")
    )
    return _square(parts, layer, form.cross(q, keys, values), "cross_attn", "out")


def plain_feed_forward(parts: Parts, layer: int, x: str) -> str:
    shape, theirs = parts.shape, f"blk.{layer}.ffn"
    x = parts.linear(x, "fc1", f"{theirs}_up", shape.hidden, shape.inner, biased=True)
    return parts.linear(parts.gelu(x, "none"), "fc2", f"{theirs}_down", shape.inner, shape.hidden, biased=True)


def _square(parts: Parts, layer: int, x: str, module: str, name: str, biased: bool = True) -> str:
    width = parts.shape.hidden
    return parts.linear(x, f"{name}_proj", f"blk.{layer}.{module}_{name}", width, width, biased=biased)
