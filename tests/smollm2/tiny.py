"""A GGUF file like SmolLM2's, only tiny and with random weights: same tensors, same quantization, same tokenizer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from tokenizers import pre_tokenizers

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
DEFINED = ("<box>",)
MERGES = ("2 0", "h e", "l l", "he ll", "Ġ w", "o r", "Ġw or", "l d", "Ġwor ld", "Ġ a")
TOKENS = (
    *SPECIAL,
    *DEFINED,
    *sorted(pre_tokenizers.ByteLevel.alphabet()),
    *(merge.replace(" ", "") for merge in MERGES),
)
TEMPLATE = (
    "{% for message in messages %}"
    "{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are tiny.<|im_end|>\n' }}"
    "{% endif %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_KIND = gguf.GGMLQuantizationType


HIDDEN, INNER, HEADS, KV_HEADS = 64, 96, 4, 2
HEAD = HIDDEN // HEADS


@dataclass(frozen=True)
class Tiny:
    """What to write. ``tied``: the head reads the embedding; ``header``: entries that are other than usual, where None
    leaves one out; ``without``, ``also``: weights to leave out, and to add."""

    layers: int = 2
    tied: bool = True
    header: Mapping[str, Any] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    also: tuple[str, ...] = ()


def write_tiny(path: Path, tiny: Tiny = Tiny(), seed: int = 0) -> Path:
    """Write the file; matrices as Q4_1, the embedding as Q8_0, norms as F32, as in the real one."""
    random = np.random.default_rng(seed)
    header = {**_header(tiny), **tiny.header}
    writer = gguf.GGUFWriter(path, header.pop("general.architecture"))
    for key, value in header.items():
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        elif value is not None:
            writer.add_array(key, list(value))
    for name, shape, kind in _tensors(tiny):
        if name in tiny.without:
            continue
        # Wide enough that positions and masks show in the scores.
        values = random.standard_normal(shape).astype(np.float32) * np.float32(1.5 * shape[-1] ** -0.5)
        if kind == _KIND.F32:
            values = np.abs(values) + np.float32(0.5)
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    for name in tiny.also:
        writer.add_tensor(name, np.ones(HIDDEN, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _header(tiny: Tiny) -> dict[str, Any]:
    return {
        "general.architecture": "llama",
        "general.name": "Tiny",
        "general.organization": "Nobody",
        "general.license": "apache-2.0",
        "llama.block_count": tiny.layers,
        "llama.context_length": 64,
        "llama.embedding_length": HIDDEN,
        "llama.feed_forward_length": INNER,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 100.0,
        "llama.rope.dimension_count": HEAD,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.token_type": [3] * len(SPECIAL)
        + [4] * len(DEFINED)
        + [1] * (len(TOKENS) - len((*SPECIAL, *DEFINED))),
        "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": TEMPLATE,
    }


def _tensors(tiny: Tiny) -> list[tuple[str, tuple[int, ...], Any]]:
    found: list[tuple[str, tuple[int, ...], Any]] = [("token_embd.weight", (len(TOKENS), HIDDEN), _KIND.Q8_0)]
    for layer in range(tiny.layers):
        found += [(f"blk.{layer}.{name}_norm.weight", (HIDDEN,), _KIND.F32) for name in ("attn", "ffn")]
        rows = {"attn_q": HIDDEN, "attn_k": KV_HEADS * HEAD, "attn_v": KV_HEADS * HEAD, "attn_output": HIDDEN}
        rows |= {"ffn_gate": INNER, "ffn_up": INNER}
        shapes = {**{name: (length, HIDDEN) for name, length in rows.items()}, "ffn_down": (HIDDEN, INNER)}
        found += [(f"blk.{layer}.{name}.weight", shape, _KIND.Q4_1) for name, shape in shapes.items()]
    found.append(("output_norm.weight", (HIDDEN,), _KIND.F32))
    return found if tiny.tied else [*found, ("output.weight", (len(TOKENS), HIDDEN), _KIND.F16)]
