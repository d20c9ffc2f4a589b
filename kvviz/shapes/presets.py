"""Sizes of published decoders.

Sources: the ``config.json`` beside each model's weights on Hugging Face (``num_hidden_layers``, ``hidden_size``,
``intermediate_size``, ``vocab_size``, ``num_attention_heads``, ``num_key_value_heads``, ``head_dim``,
``max_position_embeddings``, ``rope_theta``, ``rms_norm_eps``, ``tie_word_embeddings``, ``sliding_window``): meta-llama,
HuggingFaceTB (SmolLM2), TinyLlama, Qwen, mistralai (Mistral-7B-v0.1), google (Gemma), deepseek-ai, openai (Whisper).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from kvviz.decoders.decoder_shape import Experts, Latent, Shape

# layers, hidden, inner, vocabulary, heads, key heads, head size, positions, theta, epsilon, tied
_LLAMA_3 = Shape(32, 4096, 14336, 128256, 32, 8, 128, 8192, 5e5, 1e-5, False)
_LLAMA_3_70B = replace(_LLAMA_3, layers=80, hidden=8192, inner=28672, heads=64)
_QWEN_25 = Shape(28, 3584, 18944, 152064, 28, 4, 128, 32768, 1e6, 1e-6, False, biased=True)
_QWEN_3 = Shape(36, 4096, 12288, 151936, 32, 8, 128, 40960, 1e6, 1e-6, False, head_norms=True)
_GEMMA_2 = Shape(
    *(26, 2304, 9216, 256000, 8, 4, 256, 8192, 1e4, 1e-6, True),
    gemma=True,
    window=4096,
    global_every=2,
    scale=256**-0.5,  # query_pre_attn_scalar
    score_cap=50.0,
    logit_cap=30.0,
)
_GEMMA_3 = Shape(
    *(26, 1152, 6912, 262144, 4, 1, 256, 32768, 1e6, 1e-6, True),
    gemma=True,
    head_norms=True,
    window=512,
    global_every=6,
    local_theta=1e4,
    scale=256**-0.5,
)
_WHISPER = Shape(32, 1280, 5120, 51866, 20, 20, 64, 448, 1e4, 1e-5, True, encoder_rows=1500)

PRESETS: Mapping[str, Shape] = MappingProxyType(
    {
        "llama-2-7b": Shape(32, 4096, 11008, 32000, 32, 32, 128, 4096, 1e4, 1e-5, False),
        "llama-2-13b": Shape(40, 5120, 13824, 32000, 40, 40, 128, 4096, 1e4, 1e-5, False),
        "llama-2-70b": Shape(80, 8192, 28672, 32000, 64, 8, 128, 4096, 1e4, 1e-5, False),
        "llama-3-8b": _LLAMA_3,
        "llama-3-70b": _LLAMA_3_70B,
        "llama-3.1-8b": replace(_LLAMA_3, positions=131072),
        "llama-3.1-70b": replace(_LLAMA_3_70B, positions=131072),
        "llama-3.1-405b": replace(_LLAMA_3, layers=126, hidden=16384, inner=53248, heads=128, positions=131072),
        "llama-3.2-1b": Shape(16, 2048, 8192, 128256, 32, 8, 64, 131072, 5e5, 1e-5, True),
        "llama-3.2-3b": Shape(28, 3072, 8192, 128256, 24, 8, 128, 131072, 5e5, 1e-5, True),
        "smollm2-135m": Shape(30, 576, 1536, 49152, 9, 3, 64, 8192, 1e5, 1e-5, True),
        "tinyllama-1.1b": Shape(22, 2048, 5632, 32000, 32, 4, 64, 2048, 1e4, 1e-5, False),
        "qwen2.5-0.5b": replace(
            _QWEN_25, layers=24, hidden=896, inner=4864, vocabulary=151936, heads=14, kv_heads=2, head=64, tied=True
        ),
        "qwen2.5-7b": _QWEN_25,
        "qwen2.5-32b": replace(_QWEN_25, layers=64, hidden=5120, inner=27648, heads=40, kv_heads=8),
        "qwen2.5-72b": replace(_QWEN_25, layers=80, hidden=8192, inner=29568, heads=64, kv_heads=8),
        "qwen3-0.6b": replace(_QWEN_3, layers=28, hidden=1024, inner=3072, heads=16, tied=True),
        "qwen3-8b": _QWEN_3,
        "qwen3-32b": replace(_QWEN_3, layers=64, hidden=5120, inner=25600, heads=64),
        "mistral-7b": Shape(32, 4096, 14336, 32000, 32, 8, 128, 32768, 1e4, 1e-5, False, window=4096),
        "gemma-2-2b": _GEMMA_2,
        "gemma-2-9b": replace(_GEMMA_2, layers=42, hidden=3584, inner=14336, heads=16, kv_heads=8),
        "gemma-2-27b": replace(
            _GEMMA_2, layers=46, hidden=4608, inner=36864, heads=32, kv_heads=16, head=128, scale=144**-0.5
        ),
        "gemma-3-1b": _GEMMA_3,
        "deepseek-v3": Shape(
            *(61, 7168, 18432, 129280, 128, 128, 192, 163840, 1e4, 1e-6, False),
            latent=Latent(queries=1536, rank=512, rotary=64, plain=128, value=128),
            experts=Experts(count=256, chosen=8, inner=2048, shared=1, first=3, scale=2.5),
        ),
        "whisper-tiny": replace(_WHISPER, layers=4, hidden=384, inner=1536, vocabulary=51865, heads=6, kv_heads=6),
        "whisper-large-v3": _WHISPER,
    }
)
"""Sizes by name."""
