"""A GGUF file of the Llama family as an ONNX model in memory, for whoever only wants to look at it."""

from __future__ import annotations

import os
import uuid
from typing import NamedTuple

import numpy as np
from onnx import ModelProto

from kvviz.decoders.builder import Held
from kvviz.decoders.decoder import decoder
from kvviz.decoders.operator_forms import GROWING
from kvviz.smollm2.checkpoint import Checkpoint


class Opened(NamedTuple):
    """The model, whose weights are external data by names that ``arrays`` has, and the file that it was made from."""

    model: ModelProto
    arrays: dict[str, np.ndarray]
    checkpoint: Checkpoint


def open_gguf(path: str | os.PathLike[str], form: str = "concat") -> Opened:
    """Build the graph of a GGUF file; its weights are expanded to float32 and kept in memory.

    Raises
    ------
    KvvizError
        The package ``gguf`` is missing, or the model is not of that family (`LoadError`).
    """
    checkpoint = Checkpoint(path)
    # A mark that no file can contain by chance or intent.
    held = Held(uuid.uuid4().hex)
    return Opened(decoder(checkpoint, GROWING[form], held), held.arrays, checkpoint)
