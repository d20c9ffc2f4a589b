"""The work of one run: floating-point operations of its matrix products, and bytes that it has to read for them.

An m × k matrix times a k × n matrix takes m·n·k multiplications and as many additions. What has to be read is counted
as roofline models do it: every weight once, and every row that the caches hold once. Activations are left out: they
are small, and a fused kernel does not write them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from kvviz.errors import KvvizError
from kvviz.trace.recording import Trace

_COUNTED = ("MatMul", "Gemm")
# They multiply matrices inside, and hide the shapes.
_FUSED = (
    "Attention",
    "GroupQueryAttention",
    "MultiHeadAttention",
    "PagedAttention",
    "PackedAttention",
    "FusedMatMul",
    "FusedGemm",
    "MatMulNBits",
    "MatMulInteger",
    "QLinearMatMul",
    "Einsum",
    "Conv",
    "LSTM",
    "GRU",
    "RNN",
)


@dataclass(frozen=True, slots=True)
class Work:
    """What one run computes and reads.

    Attributes
    ----------
    tokens : int
        Tokens that it was fed: rows that it wrote into a cache.
    flops : int
        Floating-point operations of its matrix products.
    weight_bytes : int
        Bytes of all weights that they multiply with.
    cache_bytes : int
        Bytes of the keys and values of all tokens so far.
    """

    tokens: int
    flops: int
    weight_bytes: int
    cache_bytes: int

    @property
    def bytes_read(self) -> int:
        """Bytes of weights and caches that a run reads."""
        return self.weight_bytes + self.cache_bytes

    @property
    def intensity(self) -> float:
        """Arithmetic intensity: floating-point operations for each byte read."""
        return self.flops / self.bytes_read

    def __str__(self) -> str:
        read = f"{self.weight_bytes:,} B of weights and {self.cache_bytes:,} B of cache"
        return f"{self.flops:,} FLOP, {read}: {self.intensity:.2f} FLOP/byte"


def work(trace: Trace, run: int = 0) -> Work:
    """Count what a run computes and reads, from the shapes in its recording.

    Parameters
    ----------
    trace : Trace
        Of a decoder whose products are ``MatMul`` and ``Gemm`` ops.
    run : int

    Raises
    ------
    KvvizError
        If there is no such run, its steps were not kept, or an op of it multiplies matrices inside.
    """
    if not 0 <= run < len(trace.runs):
        raise KvvizError(f"there is no run {run}; the trace has {len(trace.runs)}")
    one = trace.runs[run]
    steps = trace.steps[one.first : one.last]
    fused = sorted({step.op_type for step in steps if step.op_type in _FUSED})
    if fused:
        raise KvvizError(f"the products inside {', '.join(fused)} have no recorded shapes; use another export")
    frames = [(number, frame) for number, frame in enumerate(trace.frames) if frame.run == run]
    known = {(number, bound.name): bound for number, frame in frames for bound in frame.bindings}
    weights: dict[int, int] = {}
    flops = cached = 0
    outputs = {cache.output for cache in trace.caches}
    for step in steps:
        if step.op_type in _COUNTED:
            factors = [known[step.frame_id, name] for name in step.inputs[:2]]
            inner = -2 if step.op_type == "Gemm" and step.graph_node.attributes.get("transA") else -1
            flops += 2 * prod(step.outs[0].shape or ()) * (factors[0].shape or (0,))[inner]
            blocks = (trace.storages[factor.storage] for factor in factors)
            weights |= {block.id: block.capacity for block in blocks if block.origin == "weights"}
        known |= {(step.frame_id, out.name): out for out in step.outs}
        cached += sum(out.nbytes for out in step.outs if out.name in outputs)
    if not flops:
        raise KvvizError(f"run {run} has no matrix products whose steps were kept")
    tokens = trace.caches[0].runs[run].rows_written if trace.caches else 0
    return Work(tokens, flops, sum(weights.values()), cached)
