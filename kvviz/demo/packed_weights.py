"""A small model as a file of a few bytes: weights of 8 bits with a scale for each row, and all of it compressed.

``python -m kvviz.demo.packed_weights MODEL OUT`` makes such a file. Rounding changes a weight by at most half of its
row's scale, so the model stays itself, but where two words were nearly as likely it may choose the other.
"""

from __future__ import annotations

import lzma
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

_SCALE = "/scale"
_LEAST = 256  # numbers; what is smaller stays as it is
_STEPS = 127


def pack(model: onnx.ModelProto) -> bytes:
    """Pack a model; it is not changed."""
    small = onnx.ModelProto()
    small.CopyFrom(model)
    tensors = list(small.graph.initializer)
    del small.graph.initializer[:]
    for tensor in tensors:
        array = numpy_helper.to_array(tensor)
        if tensor.data_type != TensorProto.FLOAT or array.size < _LEAST:
            small.graph.initializer.append(tensor)
            continue
        scale = np.maximum(np.abs(array).max(-1, keepdims=True) / _STEPS, np.finfo(np.float32).tiny)
        rounded = np.rint(array / scale).astype(np.int8)
        small.graph.initializer.append(numpy_helper.from_array(rounded, tensor.name))
        small.graph.initializer.append(numpy_helper.from_array(scale.astype(np.float32), tensor.name + _SCALE))
    return lzma.compress(small.SerializeToString(deterministic=True), preset=9 | lzma.PRESET_EXTREME)


def unpack(data: bytes) -> onnx.ModelProto:
    """The model in float32, with the names and the order of weights that it had."""
    model = onnx.ModelProto.FromString(lzma.decompress(data))
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    del model.graph.initializer[:]
    for name, tensor in tensors.items():
        if name.endswith(_SCALE):
            continue
        if (scale := tensors.get(name + _SCALE)) is not None:
            array = numpy_helper.to_array(tensor).astype(np.float32) * numpy_helper.to_array(scale)
            tensor = numpy_helper.from_array(array, name)
        model.graph.initializer.append(tensor)
    return model


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(pack(onnx.load(sys.argv[1])))
