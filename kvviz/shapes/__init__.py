"""Decoders of published sizes as graphs without weights, for `kvviz.dry`: their cost follows from their shapes.

>>> graph = kvviz.shapes.preset("llama-3-70b", form="gqa")
>>> kvviz.dry(graph, prompt_tokens=2048, max_new_tokens=8).peak_bytes
"""

from __future__ import annotations

from kvviz.decoders.decoder_shape import Experts, Latent, Shape
from kvviz.decoders.operator_forms import FORMS
from kvviz.shapes.presets import PRESETS
from kvviz.shapes.weightless_graphs import llama, preset

__all__ = ["FORMS", "PRESETS", "Experts", "Latent", "Shape", "llama", "preset"]
