"""A small trained model that is part of the package: a Llama with three layers that writes stories with 118 words.

The model is ``assets/models/storyteller/concat`` of the repository (its README says how it was made), packed by
`kvviz.demo.storyteller`.
"""

from __future__ import annotations

import io
import json
import lzma
import os
import sys
import tarfile
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from kvviz.decode.public_runs import decode
from kvviz.demo.lesson_form import write_lessons
from kvviz.errors import KvvizError
from kvviz.graph.loading.load import load
from kvviz.graph.model import Graph
from kvviz.text.companions import Words
from kvviz.trace.recording import Trace

BEGINNING = "once upon a time there was a brave owl named rosa ."
# A story has some seventy words; longer ones are cut.
_LONGEST = 96


@cache
def model() -> Graph:
    """The model; its cache grows by Concat."""
    return load(unpack(files("kvviz.demo").joinpath("storyteller.onnx.xz").read_bytes()), name="storyteller")


@cache
def vocabulary() -> Words:
    return Words(json.loads(files("kvviz.demo").joinpath("vocab.json").read_text("utf-8")))


def story(beginning: str = BEGINNING, progress: bool = False) -> Trace:
    """Decode a whole story, and return the trace.

    >>> print(*story().words)                                                   # doctest: +SKIP
    <s> once upon a time there was a brave owl named rosa . rosa lived in a castle . …
    """
    words = vocabulary()
    trace = decode(model(), beginning, _LONGEST, tokenizer=words, stop_tokens=words.stop_tokens, progress=progress)
    trace.title = "storyteller"
    return trace


# -- lesson files -----------------------------------------------------------------------------------------------------
# The lessons, which lie in the wheel as one archive, copied to a folder of the user's.
#
# The archive holds ``notebooks/`` and what they read, ``assets/models/…``, side by side as in the repository.


ARCHIVE = "lessons.tar.xz"
LESSONS = "kvviz-lessons"


def unpack_lessons(folder: Path) -> Path:
    """Copy the lessons to a folder, and return that of the notebooks; existing files stay, so that experiments in them
    are kept. In a checkout, without an archive, they go to its folder ``lessons``."""
    packed = files("kvviz.demo").joinpath(ARCHIVE)
    if not packed.is_file():
        own = Path(__file__).resolve().parents[2] / "notebooks"
        if not own.is_dir():
            raise KvvizError("the lessons are not in this installation; install kvviz from its wheel")
        return write_lessons(own, own.parent / "lessons")
    with tarfile.open(fileobj=io.BytesIO(lzma.decompress(packed.read_bytes()))) as archive:
        for member in archive:
            place = folder.joinpath(*member.name.split("/"))
            data = archive.extractfile(member)
            if data is None or place.exists():
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data.read())
    return Path(os.fspath(folder)) / "notebooks"


# -- packed weights ---------------------------------------------------------------------------------------------------
# A small model as a file of a few bytes: weights of 8 bits with a scale for each row, and all of it compressed.
#
# ``python -m kvviz.demo.storyteller MODEL OUT`` makes such a file. Rounding changes a weight by at most half of
# its row's scale, so the model stays itself, but where two words were nearly as likely it may choose the other.


_SCALE = "/scale"
_LEAST = 256  # numbers; what is smaller stays as it is
_STEPS = 127


def pack(model: onnx.ModelProto) -> bytes:
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
    """The model in float32, with its original weight names and order."""
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
