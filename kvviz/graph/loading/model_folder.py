"""A model folder: which of its graphs to read, and where its tokenizer and configuration lie.

Layouts: optimum's (``model.onnx``, or ``encoder_model.onnx`` and decoders beside it), onnxruntime-genai's (the file
that ``genai_config.json`` names), and that of transformers.js (graphs in ``onnx/``, in several precisions).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from kvviz.errors import LoadError, quoted
from kvviz.text.companions import Companions, json_file

SUBFOLDER = "onnx"
_LOG = logging.getLogger(__name__)
_SHOWN = 12
_WHOLE = ("model.onnx", "decoder_model_merged.onnx")


class SeveralGraphsError(LoadError):
    """A folder has several graphs, and none was chosen. ``likely``: the name of one of them."""

    def __init__(self, folder: str, graphs: Sequence[str]) -> None:
        self.likely = likely(graphs)
        super().__init__(
            f"{quoted(folder, 1000)} has {len(graphs)} graphs; say which: graph={self.likely!r} "
            f"(--graph in a shell); there are {_list(graphs)}"
        )


def likely(graphs: Sequence[str]) -> str:
    """The usual choice among several graphs: one that does without the others."""
    return next((name for name in graphs if os.path.basename(name) in _WHOLE), graphs[0])


def beside(path: str) -> Companions:
    folder = os.path.dirname(path) or os.curdir
    above = os.path.dirname(os.path.abspath(folder))
    inner = os.path.basename(os.path.abspath(folder)) == SUBFOLDER
    return Companions((folder, above) if inner else (folder,))


def find_model(folder: str, graph: str | None = None) -> tuple[str, Companions]:
    """The path of the graph of a folder, and its companions.

    ``graph``: the name of its file, with or without ``.onnx`` and the folder ``onnx/``. By default the one that
    ``genai_config.json`` names, else the only one, else ``model.onnx`` among other precisions of the same.

    Raises `LoadError`: if there is none, or there are several and none was chosen; the message lists them.
    """
    files = graphs_in(folder)
    if not files:
        ggufs = sorted(name for name in os.listdir(folder) if name.lower().endswith(".gguf"))
        if len(ggufs) == 1 and graph is None:
            return os.path.join(folder, ggufs[0]), Companions((folder,))
        raise LoadError(f"{quoted(folder, 1000)} is a folder with no .onnx file in it, nor in {SUBFOLDER}/ below it")
    chosen = _named(folder, files, graph) if graph is not None else _meant(folder, files)
    if chosen is None:
        raise SeveralGraphsError(folder, files)
    if len(files) > 1:
        _LOG.info("of %d graphs in %s, %s is taken", len(files), quoted(folder, 1000), chosen)
    path = os.path.join(folder, *chosen.split("/"))
    return path, Companions(tuple(dict.fromkeys((os.path.dirname(path), folder))), files)


def graphs_in(folder: str) -> tuple[str, ...]:
    """ONNX files of a folder and of ``onnx/`` in it, relative, with ``/``."""
    try:
        own = sorted(name for name in os.listdir(folder) if name.endswith(".onnx"))
        inner = os.path.join(folder, SUBFOLDER)
        below = sorted(name for name in os.listdir(inner) if name.endswith(".onnx")) if os.path.isdir(inner) else []
    except OSError as error:
        raise LoadError(f"{quoted(folder, 1000)} cannot be read: {error.strerror}") from None
    return (*own, *(f"{SUBFOLDER}/{name}" for name in below))


def _named(folder: str, files: Sequence[str], graph: str) -> str:
    fitting = [
        file for file in files if graph in (file, file[:-5], os.path.basename(file), os.path.basename(file)[:-5])
    ]
    if not fitting:
        raise LoadError(f"{quoted(folder, 1000)} has no graph {quoted(graph)}; there are {_list(files)}")
    return fitting[0]


def _meant(folder: str, files: Sequence[str]) -> str | None:
    said = _genai_file(folder)
    if said in files:
        return said
    if len(files) == 1:
        return files[0]
    # model_fp16.onnx, model_q4.onnx … are the same model in other number formats.
    for name in _WHOLE:
        stem = name[:-5]
        whole = [file for file in files if os.path.basename(file) == name]
        others = [file for file in files if not os.path.basename(file).startswith(f"{stem}_")]
        if whole and set(others) <= set(whole):
            return whole[0]
    return None


def _genai_file(folder: str) -> str:
    said: object = json_file((folder,), "genai_config.json")
    for part in ("model", "decoder", "filename"):
        said = said.get(part) if isinstance(said, dict) else None
    return said if isinstance(said, str) else ""


def _list(files: Sequence[str]) -> str:
    more = f" and {len(files) - _SHOWN} more" if len(files) > _SHOWN else ""
    return ", ".join(quoted(file) for file in files[:_SHOWN]) + more
