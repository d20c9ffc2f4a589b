"""Fourier transforms: DFT along one axis, and STFT over the frames of a signal.

Complex numbers are pairs along the last axis; real ones have length 1 there.
"""

from __future__ import annotations

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.numeric import check_size, counted, rounded_once, scalar
from kvviz.ops.registry import op


@op("DFT", since=20)
def dft(x, dft_length=None, axis=None, *, inverse=0, onesided=0):
    """The transform along an axis, cut or padded with zeros to ``dft_length``. A one-sided one keeps the first half of
    a real signal's spectrum; its inverse returns the real signal."""
    return _dft(x, dft_length, -2 if axis is None else int(scalar(axis, "axis")), inverse, onesided)


@op("DFT", since=17)
def dft_by_attribute(x, dft_length=None, *, axis=1, inverse=0, onesided=0):
    return _dft(x, dft_length, axis, inverse, onesided)


@rounded_once
def _dft(x, dft_length, axis, inverse, onesided):
    along = counted(axis, x.ndim)
    if x.ndim < 2 or x.shape[-1] not in (1, 2):
        raise OpError(f"a tensor of shape {x.shape} holds no numbers of 1 part or 2 along its last axis")
    if along == x.ndim - 1:
        raise OpError(f"axis {axis} holds the parts of a number: there is no signal along it")
    back = bool(inverse and onesided)
    if onesided and not inverse and x.shape[-1] == 2:
        raise OpError("a one-sided transform takes a real signal, but this one is complex")
    if back and x.shape[-1] == 1:
        raise OpError("the inverse of a one-sided transform takes complex numbers, but these are real")
    given = x.shape[along]
    length = (2 * (given - 1) if back else given) if dft_length is None else int(scalar(dft_length, "dft_length"))
    if length < 1:
        raise OpError(f"a transform over {length} numbers does not exist: give a dft_length of 1 or more")
    check_size((*x.shape[:along], length, *x.shape[along + 1 : -1], 2), x.dtype)
    numbers = _complex(x)
    if back:
        real = np.fft.irfft(numbers, length, along)
        return np.ascontiguousarray(real[..., None].astype(x.dtype, copy=False))
    if onesided:
        return _pairs(np.fft.rfft(numbers, length, along), x.dtype)
    return _pairs((np.fft.ifft if inverse else np.fft.fft)(numbers, length, along), x.dtype)


@op("STFT", since=17)
@rounded_once
def stft(signal, frame_step, window=None, frame_length=None, *, onesided=1):
    """The transforms of overlapping frames, (batch, frames, bins, 2), of a signal (batch, length[, 1 or 2])."""
    if signal.ndim not in (2, 3) or (signal.ndim == 3 and signal.shape[2] not in (1, 2)):
        raise OpError(f"a signal must be (batch, length), with 1 or 2 parts a number behind, but is {signal.shape}")
    numbers = signal if signal.ndim == 2 else _complex(signal)
    if window is None and frame_length is None:
        raise OpError("one of window and frame_length must say how long a frame is")
    size = window.size if frame_length is None else int(scalar(frame_length, "frame_length"))
    step = int(scalar(frame_step, "frame_step"))
    if window is not None and window.shape != (size,):
        raise OpError(f"a window of shape {window.shape} does not fit a frame_length of {size}")
    if step < 1 or not 1 <= size <= numbers.shape[1]:
        raise OpError(f"frames of {size} every {step} do not fit a signal of {numbers.shape[1]} numbers")
    if onesided and np.iscomplexobj(numbers):
        raise OpError("a one-sided transform takes a real signal, but this one is complex")
    frames = np.lib.stride_tricks.sliding_window_view(numbers, size, 1)[:, ::step]
    if window is not None:
        frames = frames * window
    return _pairs((np.fft.rfft if onesided else np.fft.fft)(frames, size, -1), signal.dtype)


def _complex(x: np.ndarray) -> np.ndarray:
    return x[..., 0] if x.shape[-1] == 1 else x[..., 0] + 1j * x[..., 1]


def _pairs(numbers: np.ndarray, dtype: np.dtype) -> np.ndarray:
    y = np.empty((*numbers.shape, 2), dtype)
    y[..., 0], y[..., 1] = numbers.real, numbers.imag
    return y
