"""Random calls of one operator: against an oracle, on read-only inputs, and once more in place with the same bits.

A call in place writes into a block that is longer than needed and holds a sentinel in every row that the past does not
have, so that a row written past the end shows, and one that should have been written and was not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from kvviz.engine.decide import elementwise_misfit
from kvviz.errors import OpError
from kvviz.ops.registry import OpSpec
from tests.ops.kernels import Array, broken_promises, differs, frozen, run_kernel, same, spec_of
from tests.ops.ort_oracle import ort_run

HALVES = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
SPARE = 3
SENTINEL = 77
ONE_BLOCK = 1 << 32
"""A call that appends more rows than this says that it cannot append at all."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of one operator; ``asked`` is what the oracle is asked instead."""

    op_type: str
    inputs: list[Array | None]
    attributes: dict[str, Any]
    n_outputs: int = 1
    opset: int = 21
    domain: str = ""
    asked: Call | None = None

    def run(self, inputs: Sequence[Array | None], **how: Any) -> tuple:
        return run_kernel(self.op_type, inputs, self.n_outputs, self.opset, self.domain, **self.attributes, **how)

    def __str__(self) -> str:
        shapes = [None if x is None else x.shape for x in self.inputs]
        return f"{self.op_type}-{self.opset} {shapes} {self.attributes} {self.n_outputs} outputs"


Parts = Callable[[Call, Sequence[Array]], list[Array]]
Oracle = Callable[[Call], Sequence[Array]]


def by_ort(call: Call) -> list[Array]:
    """What onnxruntime computes."""
    return ort_run(call.op_type, call.inputs, call.n_outputs, call.opset, call.domain, **call.attributes)


def in_single(call: Call) -> list[Array]:
    """What onnxruntime computes, for numbers in half precision in single precision and then rounded once.

    Outputs 1 and 2 of a normalisation are statistics, which stay in single precision.
    """
    halves = [x.dtype for x in call.inputs if x is not None and x.dtype in HALVES]
    inputs = [x.astype(np.float32) if x is not None and x.dtype in HALVES else x for x in call.inputs]
    outputs = by_ort(replace(call, inputs=inputs))
    statistics = (1, 2) if call.op_type.endswith("Normalization") else ()
    rounded = [i not in statistics and y.dtype == np.float32 for i, y in enumerate(outputs)]
    return [y.astype(halves[0]) if halves and rounds else y for y, rounds in zip(outputs, rounded)]


def normals(rng: np.random.Generator, *shape: int) -> Array:
    """Normal numbers, small enough that sums of their products are rounded alike within the tolerance everywhere."""
    return (rng.standard_normal(shape) * 0.7).astype(np.float32)


def dice(*seeds: int) -> tuple[np.random.Generator, Callable[..., Array], Callable[[float], bool]]:
    """Random numbers of a seed; normal ones in a shape; and what is true in a share of all cases."""
    rng = np.random.default_rng(seeds)

    def perhaps(share: float) -> bool:
        return bool(rng.random() < share)

    return rng, partial(normals, rng), perhaps


def trimmed(*inputs: Array | None) -> list[Array | None]:
    """Inputs without the absent ones at the end."""
    given = list(inputs)
    while given[-1] is None:
        given.pop()
    return given


def cast(call: Call, dtype: type) -> Call:
    """The same call with its numbers in another precision."""
    inputs = [x.astype(dtype) if x is not None and x.dtype == np.float32 else x for x in call.inputs]
    return replace(call, inputs=inputs, asked=None if call.asked is None else cast(call.asked, dtype))


def tally(
    make: Callable[[int], Call],
    count: int,
    parts: Parts = lambda call, outputs: list(outputs),
    oracle: Oracle = by_ort,
    rtol: float = 1e-5,
    atol: float = 1e-6,
    in_place: int = 0,
    refused: int = 0,
) -> None:
    """Make so many calls, and compare each with the oracle and with itself in place, as at least ``in_place`` can be.

    At least ``refused`` calls are wrong, which both must refuse. An error that is not an `OpError` fails.
    """
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    for seed in range(count):
        call = make(seed)
        found = _differences(call, np.random.default_rng(seed), counts, parts, oracle, rtol, atol)
        wrong += [f"{seed}: {what} in {call}" for what in found]
    assert not wrong, f"{len(wrong)} of {count} calls:\n" + "\n".join(wrong[:5])
    assert counts["in place"] >= in_place and counts["refused"] >= refused, counts
    assert counts["compared"] == count - counts["refused"] and bool(refused) == bool(counts["refused"]), counts


def _differences(
    call: Call, rng: np.random.Generator, counts: Counter[str], parts: Parts, oracle: Oracle, rtol: float, atol: float
) -> list[str]:
    try:
        wanted: Sequence[Array] | None = oracle(call.asked or call)
    except Exception:
        wanted = None
    args = frozen(call.inputs)
    try:
        outputs = call.run(args)
    except OpError as error:
        counts["refused"] += wanted is None
        return [] if wanted is None else [f"refused: {error}"]
    if wanted is None:
        return ["refused by the oracle alone"]
    counts["compared"] += 1
    spec = spec_of(call.op_type, call.opset, call.domain)
    found = broken_promises(spec, args, outputs[: call.n_outputs])
    for i, (have, want) in enumerate(zip(parts(call, outputs), parts(call, wanted), strict=True)):
        difference = differs(have, want, rtol, atol)
        found += [f"part {i} is {difference}"] if difference else []
    bits, taken = in_place_differs(call, outputs, rng)
    counts["in place"] += taken > 0
    return [*found, f"in place {bits}"] if bits else found


def in_place_differs(call: Call, plain: Sequence[Array], rng: np.random.Generator) -> tuple[str, int]:
    """Run a call again with inputs taken over that the table offers: the data of a scatter, some or all of the pasts;
    what differs from the run that took nothing over, and how many were."""
    given, how, spare = taken_over(call, rng)
    if not how:
        return "", 0
    outputs = call.run(given, **how)
    for i, (y, want) in enumerate(zip(outputs, plain, strict=True)):
        if y is not want and not same(y, want):
            return f"output {i} has other bits", 1
    if "out" in how:
        return "" if outputs[0] is how["out"] else "the output is not the input", 1
    rooms = how["grown"]
    for grow, room in zip(spec_of(call.op_type, call.opset, call.domain).grows, rooms):
        if room is not None and outputs[grow.output] is not room:
            return f"output {grow.output} is not its past", 1
    taken = sum(room is not None for room in rooms)
    return "rows past the end were written" if any((x != SENTINEL).any() for x in spare) else "", taken


def taken_over(call: Call, rng: np.random.Generator) -> tuple[list[Array | None], dict[str, Any], list[Array]]:
    """Inputs of a call in place, what the kernel is told, and rows behind the presents that it must not write."""
    spec = spec_of(call.op_type, call.opset, call.domain)
    given: list[Array | None] = list(frozen(call.inputs))
    if fitting := [i for i in spec.overwrites if i < len(given) and _fits(spec, given, i, call.attributes)]:
        position = int(rng.choice(fitting))
        target = call.inputs[position]
        assert target is not None
        given[position] = target.copy(order="C")
        return given, {"out": given[position]}, []
    rooms: list[Array | None] = []
    spare: list[Array] = []
    for grow in spec.grows:
        past = call.inputs[grow.input] if grow.input < len(call.inputs) else None
        rooms.append(None)
        rows = 0 if past is None else grow.rows(call.inputs, call.attributes)
        if past is None or grow.output >= call.n_outputs or rows > ONE_BLOCK or rng.random() < 0.2:
            continue
        axis = grow.axis(call.inputs, call.attributes)
        if rows == 0 or axis >= past.ndim:
            rooms[-1] = given[grow.input] = past.copy(order="C")
            continue
        held, total = past.shape[axis], past.shape[axis] + rows
        block = np.full((*past.shape[:axis], total + SPARE, *past.shape[axis + 1 :]), SENTINEL, past.dtype)
        own = given[grow.input] = rows_of(block, axis, 0, held)
        own[...] = past
        rooms[-1] = rows_of(block, axis, 0, total)
        spare.append(rows_of(block, axis, total, total + SPARE))
    return given, {} if all(room is None for room in rooms) else {"grown": tuple(rooms)}, spare


def _fits(spec: OpSpec, args: list[Array | None], position: int, attributes: dict[str, Any]) -> bool:
    """Whether an input is as large as the output, and all inputs lie as they would in a copy."""
    here = args[position]
    if here is None or not all(x is None or x.flags.c_contiguous for x in args):
        return False
    return not (spec.fits(args, position, attributes) if spec.fits else elementwise_misfit(args, position))


def rows_of(x: Array, axis: int, start: int, stop: int) -> Array:
    """A view of some rows along an axis."""
    index = (*(slice(None),) * axis, slice(start, stop))
    return x[index]
