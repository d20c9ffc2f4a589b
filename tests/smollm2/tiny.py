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


@dataclass(frozen=True)
class Tiny:
    """What to write.

    Attributes
    ----------
    tied : bool
        The head reads the embedding.
    header : mapping
        Entries of the header that are other than usual; None leaves one out.
    without, also : tuple of str
        Weights to leave out, and to add.
    """

    layers: int = 2
    hidden: int = 64
    inner: int = 96
    heads: int = 4
    kv_heads: int = 2
    positions: int = 64
    theta: float = 100.0
    epsilon: float = 1e-5
    tied: bool = True
    header: Mapping[str, Any] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    also: tuple[str, ...] = ()

    @property
    def head(self) -> int:
        """Size of one head."""
        return self.hidden // self.heads


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
        writer.add_tensor(name, np.ones(tiny.hidden, np.float32))
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
        "llama.context_length": tiny.positions,
        "llama.embedding_length": tiny.hidden,
        "llama.feed_forward_length": tiny.inner,
        "llama.attention.head_count": tiny.heads,
        "llama.attention.head_count_kv": tiny.kv_heads,
        "llama.attention.layer_norm_rms_epsilon": tiny.epsilon,
        "llama.rope.freq_base": tiny.theta,
        "llama.rope.dimension_count": tiny.head,
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
    hidden, queries, keys = tiny.hidden, tiny.heads * tiny.head, tiny.kv_heads * tiny.head
    found: list[tuple[str, tuple[int, ...], Any]] = [("token_embd.weight", (len(TOKENS), hidden), _KIND.Q8_0)]
    for layer in range(tiny.layers):
        found += [(f"blk.{layer}.{name}_norm.weight", (hidden,), _KIND.F32) for name in ("attn", "ffn")]
        shapes = {
            "attn_q": (queries, hidden),
            "attn_k": (keys, hidden),
            "attn_v": (keys, hidden),
            "attn_output": (hidden, queries),
            "ffn_gate": (tiny.inner, hidden),
            "ffn_up": (tiny.inner, hidden),
            "ffn_down": (hidden, tiny.inner),
        }
        found += [(f"blk.{layer}.{name}.weight", shape, _KIND.Q4_1) for name, shape in shapes.items()]
    found.append(("output_norm.weight", (hidden,), _KIND.F32))
    return found if tiny.tied else [*found, ("output.weight", (len(TOKENS), hidden), _KIND.F16)]
