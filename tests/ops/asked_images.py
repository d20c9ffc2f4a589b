"""Random calls of image operators, windows and transforms."""

from typing import Any

import numpy as np

from tests.ops.asked import Asked, Rng, asks, normal, shape, some
from tests.ops.kernels import ints


@asks("AffineGrid")
def affine_grid(rng: Rng) -> Asked:
    n, planes = int(rng.integers(1, 3)), int(rng.integers(2, 4))
    size = ints(n, 2, *shape(rng, planes, 1, 5))
    return Asked([normal(rng, n, planes, planes + 1), size], {"align_corners": int(rng.integers(0, 2))})


@asks("Col2Im")
def col2im(rng: Rng) -> Asked:
    block, image = shape(rng, 2, 1, 4), shape(rng, 2, 5, 9)
    strides, dilations, pads = shape(rng, 2, 1, 3), shape(rng, 2, 1, 3), shape(rng, 4, 0, 2)
    count = 1
    for i in range(2):
        count *= max((image[i] + pads[i] + pads[i + 2] - dilations[i] * (block[i] - 1) - 1) // strides[i] + 1, 0)
    x = normal(rng, 2, 3 * block[0] * block[1], count)
    return Asked([x, ints(*image), ints(*block)], {"strides": strides, "dilations": dilations, "pads": pads})


@asks("CumProd")
def cum_prod(rng: Rng) -> Asked:
    x = normal(rng, *shape(rng, 2))
    return Asked([x, np.array(rng.integers(-2, 2))], {"exclusive": int(rng.integers(2)), "reverse": 0}, opset=26)


@asks("Det")
def det(rng: Rng) -> Asked:
    n = int(rng.integers(1, 5))
    return Asked([normal(rng, *shape(rng, int(rng.integers(0, 3))), n, n)])


@asks("DeformConv")
def deform_conv(rng: Rng) -> Asked:
    group, offset_group = some(rng, (1, 1), (2, 1), (1, 2), (2, 2))
    kernel, strides, dilations = shape(rng, 2, 1, 4), shape(rng, 2, 1, 3), shape(rng, 2, 1, 3)
    pads, image = shape(rng, 4, 0, 3), shape(rng, 2, 4, 8)
    out = [(image[i] + pads[i] + pads[i + 2] - dilations[i] * (kernel[i] - 1) - 1) // strides[i] + 1 for i in range(2)]
    taps = kernel[0] * kernel[1]
    inputs: list[Any] = [normal(rng, 2, 4, *image), normal(rng, 2 * group, 4 // group, *kernel)]
    inputs.append(normal(rng, 2, 2 * offset_group * taps, *out))
    bias = normal(rng, 2 * group) if rng.random() < 0.5 else None
    mask = normal(rng, 2, offset_group * taps, *out) if rng.random() < 0.5 else None
    inputs += [bias, mask] if mask is not None else [bias] if bias is not None else []
    attributes = {"group": group, "offset_group": offset_group, "strides": strides, "dilations": dilations}
    return Asked(inputs, {**attributes, "pads": pads}, opset=19)


@asks("GridSample")
def grid_sample(rng: Rng) -> Asked:
    planes = int(rng.integers(2, 4))
    mode = some(rng, "linear", "nearest", "cubic" if planes == 2 else "linear")
    attributes: dict[str, Any] = {"mode": mode, "align_corners": int(rng.integers(2))}
    attributes["padding_mode"] = some(rng, "zeros", "border", "reflection")
    grid = rng.uniform(-1.6, 1.6, (2, *shape(rng, planes), planes)).astype(np.float32)
    return Asked([normal(rng, 2, 2, *shape(rng, planes, 1, 6)), grid], attributes)


@asks("MaxUnpool")
def max_unpool(rng: Rng) -> Asked:
    kernel = shape(rng, 2, 1, 4)
    strides = kernel if rng.random() < 0.7 else tuple(int(rng.integers(1, k + 1)) for k in kernel)
    n = shape(rng, 2, 1, 4)
    full = [(n[i] - 1) * strides[i] + kernel[i] for i in range(2)]
    where = np.stack([rng.permutation(3 * full[0] * full[1])[: n[0] * n[1] * 3].reshape(3, *n) for _ in range(2)])
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": strides}
    # With an output_shape onnxruntime counts the indices in it, ONNX in the shape that follows from the kernel.
    return Asked([normal(rng, 2, 3, *n), where.astype(np.int64)], attributes)


@asks("NonMaxSuppression")
def non_max_suppression(rng: Rng) -> Asked:
    batch, classes, n = shape(rng, 3, 1, 7)
    corners = np.sort(rng.uniform(0, 4, (batch, n, 2, 2)), axis=2).astype(np.float32)
    center = int(rng.integers(2))
    boxes = corners.reshape(batch, n, 4)
    if center:
        boxes = np.concatenate([corners.mean(2), corners[:, :, 1] - corners[:, :, 0]], 2)
    elif rng.random() < 0.4:
        boxes = boxes[..., [2, 3, 0, 1]]
    inputs: list[Any] = [boxes, rng.random((batch, classes, n)).astype(np.float32)]
    if rng.random() < 0.8:
        inputs.append(np.array([rng.integers(0, 5)]) if rng.random() < 0.5 else np.array(rng.integers(0, 5)))
        if rng.random() < 0.8:
            inputs.append(np.array([rng.random()], np.float32))
            if rng.random() < 0.6:
                inputs.append(np.array([rng.random()], np.float32))
    return Asked(inputs, {"center_point_box": center}, opset=11)


@asks("RoiAlign")
def roi_align(rng: Rng) -> Asked:
    n = int(rng.integers(0, 4))
    corners = np.sort(rng.uniform(-2, 12, (n, 2, 2)), axis=1).astype(np.float32).reshape(n, 4)
    attributes: dict[str, Any] = {"mode": some(rng, "avg", "max"), "sampling_ratio": int(rng.integers(0, 4))}
    attributes |= {"output_height": int(rng.integers(1, 4)), "output_width": int(rng.integers(1, 4))}
    attributes["spatial_scale"] = some(rng, 1.0, 0.5)
    opset = some(rng, 10, 15, 16, 16)
    if opset == 16:
        attributes["coordinate_transformation_mode"] = some(rng, "half_pixel", "output_half_pixel")
    return Asked([normal(rng, 2, 3, 6, 7), corners, rng.integers(0, 2, n)], attributes, opset=opset)


def resized(rng: Rng) -> Asked:
    """What onnxruntime takes: interpolation over the last two axes (one of them before channels), or over any of 3."""
    mode = some(rng, "nearest", "linear", "cubic")
    rank = int(rng.integers(1, 5)) if mode == "nearest" else some(rng, 2, 4) if mode == "cubic" else some(rng, 2, 3, 4)
    x = normal(rng, *shape(rng, rank, 1, 7))
    attributes: dict[str, Any] = {"mode": mode}
    if rng.random() < 0.8:
        choices = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric")
        attributes["coordinate_transformation_mode"] = some(rng, *choices, "tf_crop_and_resize")
    if mode == "nearest" and rng.random() < 0.8:
        attributes["nearest_mode"] = some(rng, "round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    if mode == "cubic":
        attributes["cubic_coeff_a"] = some(rng, -0.75, -0.5)
        attributes["exclude_outside"] = int(rng.integers(2))
    if mode != "nearest" and rng.random() < 0.3:
        attributes["antialias"] = 1
    free = list(range(rank)) if mode == "nearest" else [rank - 2, rank - 1]
    axes = list(range(rank))
    if rng.random() < 0.3:
        axes = sorted(rng.permutation(free)[: int(rng.integers(1, len(free) + 1))].tolist())
        attributes["axes"] = [int(a) - some(rng, 0, rank) for a in axes]
    roi = None
    if attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        begin = rng.uniform(-0.2, 0.6, len(axes))
        end = begin + rng.uniform(0.1, 0.6, len(axes))
        fixed = [axis not in free for axis in axes]
        begin[fixed], end[fixed] = 0, 1
        roi = np.concatenate([begin, end]).astype(np.float32)
        attributes["extrapolation_value"] = some(rng, 0.0, 7.5)
    if rng.random() < 0.5:
        same = 1.9 if roi is not None else 1.0
        # Lengths that have to be rounded are rounded there before corners are aligned, against ONNX's own cases.
        whole = attributes.get("coordinate_transformation_mode") == "align_corners"
        factors = (1.0, 2.0, 3.0) if whole else (0.5, 2.0, 1.5, 0.7, same, 3.1)
        scales = [float(some(rng, *factors)) if a in free else 1.0 for a in axes]
        return Asked([x, roi, np.array(scales, np.float32)], attributes, opset=19)
    sizes = [int(rng.integers(1, 9)) if a in free else x.shape[a] for a in axes]
    if roi is not None:
        # An axis that keeps its length is not cropped by onnxruntime.
        sizes = [n + (n == x.shape[a] and a in free) for n, a in zip(sizes, axes)]
    elif mode == "nearest" and attributes.get("coordinate_transformation_mode") == "half_pixel_symmetric":
        # Its coordinates are rounded another way there in the last bit, which decides between two elements.
        del attributes["coordinate_transformation_mode"]
    elif rng.random() < 0.2 and set(axes) <= set(free):
        # The policy overlooks negative axes there.
        attributes["axes"] = axes
        attributes["keep_aspect_ratio_policy"] = some(rng, "not_larger", "not_smaller", "stretch")
    return Asked([x, roi, None, ints(*sizes)], attributes, opset=19)


@asks("Resize")
def resize(rng: Rng) -> Asked:
    return resized(rng)


@asks("Upsample")
def upsample(rng: Rng) -> Asked:
    mode = some(rng, "nearest", "linear")
    rank = int(rng.integers(1, 5)) if mode == "nearest" else some(rng, 2, 4)
    scales = [1.0] * rank
    for axis in range(max(rank - 2, 0) if mode == "linear" else 0, rank):
        scales[axis] = float(some(rng, 1.0, 2.0, 1.5, 2.7))
    return Asked([normal(rng, *shape(rng, rank, 1, 6)), np.array(scales, np.float32)], {"mode": mode}, opset=9)


def window(rng: Rng) -> Asked:
    attributes: dict[str, Any] = {}
    if rng.random() < 0.7:
        attributes["periodic"] = int(rng.integers(2))
    if rng.random() < 0.3:
        attributes["output_datatype"] = some(rng, 1, 11, 7)
    return Asked([np.array(rng.integers(1, 12), some(rng, np.int64, np.int32))], attributes, opset=17)


for _name in ("BlackmanWindow", "HammingWindow", "HannWindow"):
    asks(_name)(window)


@asks("MelWeightMatrix")
def mel(rng: Rng) -> Asked:
    low = float(rng.uniform(0, 500))
    numbers: list[Any] = [rng.integers(2, 10), some(rng, 16, 64, 128), some(rng, 8000, 16000)]
    inputs = [np.array(int(n), np.int64) for n in numbers]
    inputs += [np.array(low, np.float32), np.array(low + rng.uniform(500, 3000), np.float32)]
    return Asked(inputs, {}, opset=17)


@asks("DFT")
def dft(rng: Rng) -> Asked:
    old = rng.random() < 0.4
    rank = int(rng.integers(2, 5))
    inverse, onesided = some(rng, (0, 0), (0, 1), (1, 0), (1, 1))
    parts = 1 if onesided and not inverse else int(rng.integers(1, 3))
    x = normal(rng, *shape(rng, rank - 1, 2 if inverse and onesided else 1, 9), parts)
    axis = int(rng.integers(-rank, rank - 1))
    if axis == -1 or axis == rank - 1:
        axis = -2
    length = np.array(rng.integers(1, 10), np.int64) if rng.random() < 0.4 else None
    if length is not None and inverse and onesided:
        # A spectrum of another length than one side is cut or padded in ways of its own there.
        length = np.array(2 * (x.shape[axis] - 1) + rng.integers(2), np.int64)
    attributes = {"inverse": inverse, "onesided": onesided}
    if old:
        return Asked([x] if length is None else [x, length], {**attributes, "axis": axis}, opset=17)
    return Asked([x, length, np.array(axis)], attributes, opset=20)


@asks("STFT")
def stft(rng: Rng) -> Asked:
    parts, onesided = some(rng, (1, 1), (1, 0), (2, 0))
    batch, length, size = int(rng.integers(1, 3)), int(rng.integers(12, 40)), int(rng.integers(3, 12))
    signal = normal(rng, batch, length, parts) if parts == 2 or rng.random() < 0.6 else normal(rng, batch, length)
    frame = np.array(size, np.int64)
    kind = some(rng, "window", "frame", "both")
    inputs: list[Any] = [signal, np.array(rng.integers(1, 6), np.int64)]
    inputs.append(None if kind == "frame" else normal(rng, size))
    inputs += [] if kind == "window" else [frame]
    return Asked(inputs, {"onesided": onesided}, opset=17)
