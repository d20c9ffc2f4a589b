"""Sliding windows over the spatial axes (2 and on), as convolutions and pools see them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

import numpy as np

from kvviz.errors import OpError


def spatial(slices: Iterable[slice]) -> tuple[slice, ...]:
    """An index of whole batches and channels, and of the slices on the spatial axes."""
    return (slice(None), slice(None), *slices)


@dataclass(frozen=True, slots=True)
class Window:
    """One geometry: a kernel moved over padded spatial axes, with one number an axis."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]  # padding before
    ends: tuple[int, ...]  # padding after, with what rounding up adds
    output: tuple[int, ...]  # positions

    def padded(self, x: np.ndarray, fill: float) -> np.ndarray:
        """``x`` with the padding of this geometry; ``x`` itself where there is none."""
        if not any(self.begins) and not any(self.ends):
            return x
        sizes = [b + n + e for b, n, e in zip(self.begins, x.shape[2:], self.ends)]
        y = np.full((*x.shape[:2], *sizes), fill, x.dtype)
        # A negative padding crops.
        inner = spatial(slice(max(b, 0), max(b, 0) + n + min(b, 0) + min(e, 0)) for b, n, e in self._with(x))
        outer = spatial(slice(max(-b, 0), n - max(-e, 0)) for b, n, e in self._with(x))
        y[inner] = x[outer]
        return y

    def _with(self, x):
        return zip(self.begins, x.shape[2:], self.ends)

    def taps(self, padded: np.ndarray):
        """For each place in the kernel, in order: the view of what it meets at every position."""
        for place in product(*map(range, self.kernel)):
            met = zip(place, self.dilations, self.output, self.strides)
            yield padded[spatial(slice(k * d, k * d + (n - 1) * s + 1, s) for k, d, n, s in met)]

    def columns(self, padded: np.ndarray) -> np.ndarray:
        """A read-only view (batch, channel, kernel…, position…) of the padded tensor."""
        steps = padded.strides[2:]
        return np.lib.stride_tricks.as_strided(
            padded,
            (*padded.shape[:2], *self.kernel, *self.output),
            (
                *padded.strides[:2],
                *(step * d for step, d in zip(steps, self.dilations)),
                *(step * s for step, s in zip(steps, self.strides)),
            ),
            writeable=False,
        )


def window(x, kernel, strides=None, dilations=None, pads=None, auto_pad="NOTSET", ceil_mode=0) -> Window:
    rank = x.ndim - 2
    if len(kernel) != rank:
        raise OpError(f"a kernel of shape {tuple(kernel)} does not fit a tensor of shape {x.shape}")
    strides = tuple(strides or (1,) * rank)
    dilations = tuple(dilations or (1,) * rank)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
    sizes = x.shape[2:]
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        output = tuple(-(-n // s) for n, s in zip(sizes, strides))
        total = [max((o - 1) * s + r - n, 0) for o, s, r, n in zip(output, strides, reach, sizes)]
        half = [t // 2 if auto_pad == "SAME_UPPER" else t - t // 2 for t in total]
        return Window(tuple(kernel), strides, dilations, tuple(half), tuple(t - h for t, h in zip(total, half)), output)
    pads = tuple(pads or (0,) * (2 * rank)) if auto_pad in ("NOTSET", "") else (0,) * (2 * rank)
    begins, ends = pads[:rank], list(pads[rank:])
    output_sizes = []
    for i, (n, s, r) in enumerate(zip(sizes, strides, reach)):
        room = n + begins[i] + ends[i] - r
        if room < 0 and not ceil_mode:
            raise OpError(f"a window of {r} does not fit spatial axis {i} of {x.shape} with pads {pads}")
        count = (-(-room // s) if ceil_mode else room // s) + 1
        # Rounded up, the last window must still start inside the input or the padding before it.
        if ceil_mode and (count - 1) * s >= n + begins[i]:
            count -= 1
        output_sizes.append(count)
        ends[i] = max(ends[i], (count - 1) * s + r - n - begins[i])
    return Window(tuple(kernel), strides, dilations, begins, tuple(ends), tuple(output_sizes))
