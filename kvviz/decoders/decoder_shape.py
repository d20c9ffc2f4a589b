"""The sizes of a decoder, and how its family differs from Llama."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Latent:
    """Attention over a cache of compressed rows (DeepSeek): all heads share a latent and a part that is rotated."""

    queries: int  # width that queries are compressed to
    rank: int  # width of a latent
    rotary: int  # size of the part of a head that is rotated
    plain: int  # size of the part that is not rotated
    value: int  # size of a head's values


@dataclass(frozen=True, slots=True)
class Experts:
    """Feed-forward experts, some of which a router chooses for each token (DeepSeek)."""

    count: int
    chosen: int  # for each token
    inner: int  # width of one expert
    shared: int  # experts that every token passes
    first: int  # the layers before this one have no experts
    scale: float  # factor for the sum of the chosen experts


@dataclass(frozen=True, slots=True)
class Sight:
    """How a layer attends: over how many tokens, including the current one (0: all), and with which rotary base."""

    window: int
    theta: float


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a decoder; the fields after ``tied`` describe differences from Llama."""

    layers: int
    hidden: int
    inner: int  # width of the feed-forward part
    vocabulary: int
    heads: int
    kv_heads: int
    head: int  # size of each query, and of each key unless a latent is kept instead
    positions: int  # longest context, in tokens
    theta: float  # base of the rotary frequencies
    epsilon: float  # added to the mean square in norms
    tied: bool  # the head shares the embedding's weights
    biased: bool = False  # queries, keys and values have biases (Qwen 2.5)
    head_norms: bool = False  # each query and each key is normed (Qwen 3, Gemma 3)
    window: int = 0  # tokens that a local layer attends to; 0: all
    global_every: int = 0  # every n-th layer attends to all tokens despite the window; 0: none does
    local_theta: float = 0  # ``theta`` of local layers; 0: the same
    gemma: bool = False  # norms after blocks as well, GELU instead of SiLU, embeddings times √hidden
    scale: float = 0  # factor of scores; 0: 1/√head
    score_cap: float = 0  # soft caps of attention scores and of logits; 0: none
    logit_cap: float = 0
    latent: Latent | None = None
    experts: Experts | None = None
    encoder_rows: int = 0  # Whisper: encoder rows that each layer also attends to

    def sight(self, layer: int) -> Sight:
        everywhere = self.global_every and (layer + 1) % self.global_every == 0
        if not self.window or everywhere:
            return Sight(0, self.theta)
        return Sight(self.window, self.local_theta or self.theta)

    @property
    def rotary(self) -> int:
        """Size of the rotated part of each head."""
        return self.latent.rotary if self.latent else self.head

    @property
    def score_scale(self) -> float:
        return self.scale or self.head**-0.5
