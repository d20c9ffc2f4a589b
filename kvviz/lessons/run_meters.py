"""Figures of single runs, as tables and plots of lessons begin with them: meters, values by name, arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvviz.device.simulated_time import flops
from kvviz.errors import KvvizError
from kvviz.trace.recording import Trace
from kvviz.trace.records import Step


def per_run(trace: Trace, meter: str) -> list[int]:
    """One meter of the caches, added up over all of them, for each run.

    ``meter``: a field of ``trace.caches[i].runs[j]``, as ``"bytes_copied"`` or ``"bytes_moved_outside"``.
    """
    return [sum(getattr(cache.runs[run.index], meter) for cache in trace.caches) for run in trace.runs]


def steps_of(trace: Trace, run: int) -> tuple[Step, ...]:
    """The steps of a run that were kept; raises `KvvizError` for an unknown run."""
    if not 0 <= run < len(trace.runs):
        raise KvvizError(f"there is no run {run}; the trace has {len(trace.runs)}")
    one = trace.runs[run]
    return tuple(trace.steps[one.first : one.last])


def step_that_makes(trace: Trace, name: str, run: int) -> Step:
    """The first step of a run with an output of this name; of a value that an If passes on, the op inside.

    Raises `KvvizError`: if there is no such run, or no op of it makes the value.
    """
    made = next((step for step in steps_of(trace, run) if name in step.outputs), None)
    if made is None:
        raise KvvizError(f"no op of run {run} makes {name!r}")
    return made


def value_in_run(trace: Trace, name: str, run: int) -> np.ndarray:
    """A value as it was right after the op of that run which made it; see `kvviz.Trace.value`."""
    return trace.value(name, step_that_makes(trace, name, run).index)


@dataclass(frozen=True, slots=True)
class Work:
    """What one run computes, and reads at least. Activations are left out: a fused kernel does not write them."""

    tokens: int  # that it was fed: rows that it wrote into a cache
    flops: int  # of its matrix products: a multiplication and an addition for each product
    weight_bytes: int  # of all weights that they multiply with
    cache_bytes: int  # of the keys and values of all tokens so far

    @property
    def bytes_read(self) -> int:
        """Bytes of weights and caches that a run reads."""
        return self.weight_bytes + self.cache_bytes

    @property
    def intensity(self) -> float:
        """Arithmetic intensity: floating-point operations for each byte read."""
        return self.flops / self.bytes_read


def work(trace: Trace, run: int = 0) -> Work:
    """Count what a run of a decoder computes and reads, from the shapes in its recording.

    Raises `KvvizError`: if there is no such run, its steps were not kept, or its products are not ``MatMul`` and
    ``Gemm``: the shapes inside of fused ops are not recorded.
    """
    steps = steps_of(trace, run)
    parts = ("Attention", "MatMul", "Gemm", "Einsum", "Conv", "LSTM", "GRU", "RNN")
    products = [step for step in steps if any(part in step.op_type for part in parts)]
    if fused := {step.op_type for step in products} - {"MatMul", "Gemm"}:
        raise KvvizError(f"the products inside {', '.join(sorted(fused))} have no recorded shapes; use another export")
    if not products:
        raise KvvizError(f"run {run} has no matrix products whose steps were kept")
    frames = [(number, frame) for number, frame in enumerate(trace.frames) if frame.run == run]
    known = {(number, bound.name): bound for number, frame in frames for bound in frame.bindings}
    known |= {(step.frame_id, out.name): out for step in steps for out in step.outs}
    total, weights = 0, dict[int, int]()
    for step in products:
        factors = [known[step.frame_id, name] for name in step.inputs[:2]]
        total += flops(step.graph_node, [one.shape for one in factors], [out.shape for out in step.outs])
        blocks = (trace.storages[one.storage] for one in factors)
        weights |= {block.id: block.capacity for block in blocks if block.origin == "weights"}
    outputs = {cache.output for cache in trace.caches}
    cached = sum(out.nbytes for step in steps for out in step.outs if out.name in outputs)
    tokens = trace.caches[0].runs[run].rows_written if trace.caches else 0
    return Work(tokens, total, sum(weights.values()), cached)
