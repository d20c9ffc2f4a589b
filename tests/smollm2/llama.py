"""A Llama in plain NumPy, float64, straight from a GGUF file and as ggml computes it: no cache, no graph.

Queries and keys stay as the file has them, and neighbours are turned together, so nothing here knows of any reordering.
"""

from pathlib import Path

import gguf
import numpy as np


class Llama:
    """Scores of the next token after a list of tokens."""

    def __init__(self, path: Path) -> None:
        reader = gguf.GGUFReader(path)
        self.weights = {
            t.name.removesuffix(".weight"): gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float64)
            for t in reader.tensors
        }
        self.header = {key: field.contents() for key, field in reader.fields.items()}

    def scores(self, tokens: list[int]) -> np.ndarray:
        """One score a token of the vocabulary."""
        w, header = self.weights, self.header
        x = w["token_embd"][tokens]
        for layer in range(header["llama.block_count"]):
            x = x + self._attend(layer, self._norm(x, w[f"blk.{layer}.attn_norm"]))
            y = self._norm(x, w[f"blk.{layer}.ffn_norm"])
            gate = y @ w[f"blk.{layer}.ffn_gate"].T
            y = gate / (1 + np.exp(-gate)) * (y @ w[f"blk.{layer}.ffn_up"].T)
            x = x + y @ w[f"blk.{layer}.ffn_down"].T
        return self._norm(x[-1], w["output_norm"]) @ w.get("output", w["token_embd"]).T

    def greedy(self, tokens: list[int], count: int) -> tuple[list[int], list[np.ndarray]]:
        """The tokens that follow, each time the one with the best score, and all scores."""
        chosen, scores = list(tokens), []
        for _ in range(count):
            scores.append(self.scores(chosen))
            chosen.append(int(scores[-1].argmax()))
        return chosen[len(tokens) :], scores

    def _attend(self, layer: int, x: np.ndarray) -> np.ndarray:
        w, header = self.weights, self.header
        heads, shared = header["llama.attention.head_count"], header["llama.attention.head_count_kv"]
        size = header["llama.rope.dimension_count"]
        q = self._turned((x @ w[f"blk.{layer}.attn_q"].T).reshape(len(x), heads, size))
        k = self._turned((x @ w[f"blk.{layer}.attn_k"].T).reshape(len(x), shared, size))
        v = (x @ w[f"blk.{layer}.attn_v"].T).reshape(len(x), shared, size)
        mixed = np.empty_like(q)
        for head in range(heads):
            kept = head // (heads // shared)
            for at in range(len(x)):
                p = k[: at + 1, kept] @ q[at, head] / np.sqrt(size)
                p = np.exp(p - p.max())
                mixed[at, head] = p / p.sum() @ v[: at + 1, kept]
        return mixed.reshape(len(x), heads * size) @ w[f"blk.{layer}.attn_output"].T

    def _turned(self, x: np.ndarray) -> np.ndarray:
        """Neighbours as complex numbers, turned by their position times the speed of their pair."""
        size = x.shape[-1]
        speeds = self.header["llama.rope.freq_base"] ** (-2 * np.arange(size // 2) / size)
        angles = np.arange(len(x))[:, None, None] * speeds
        turned = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * angles)
        return np.stack((turned.real, turned.imag), -1).reshape(x.shape)

    def _norm(self, x: np.ndarray, gain: np.ndarray) -> np.ndarray:
        mean = np.mean(x * x, -1, keepdims=True)
        return x / np.sqrt(mean + self.header["llama.attention.layer_norm_rms_epsilon"]) * gain
