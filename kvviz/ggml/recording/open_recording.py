"""Recordings of graphs from files, by what the file's name ends in."""

from __future__ import annotations

import os
from pathlib import Path

from kvviz.errors import KvvizError
from kvviz.ggml.recording.dump_dot import read_dot
from kvviz.ggml.recording.recorded_graphs import Recording
from kvviz.ggml.recording.recording_lines import read_lines

ENDINGS = (".jsonl", ".jsonl.gz", ".dot")
"""What names of recordings end in."""


def load(path: str | os.PathLike[str]) -> Recording:
    """Read graphs that a real ggml executed.

    Parameters
    ----------
    path : path
        ``.jsonl`` or ``.jsonl.gz``: a recording (schema ``kvviz-ggml-recording/1``), exact to the byte. ``.dot``: what
        ``ggml_graph_dump_dot`` wrote, one graph, known at precision root: it says neither offsets nor strides.

    Raises
    ------
    KvvizError
        If the file cannot be read, or a line of it is wrong: the message has its number.

    Examples
    --------
    >>> recording = kvviz.ggml.load("decode.jsonl.gz")              # doctest: +SKIP
    >>> [hazard.sentence for hazard in kvviz.hazards(recording.graphs[1])][:1]     # doctest: +SKIP
    ['MUL_MAT node_23 reads cache_k_l0 (view), which SET_ROWS cache_k_l0 (view) writes: only the schedule runs …']
    """
    path = Path(path)
    if not path.name.endswith(ENDINGS):
        raise KvvizError(f"{path} is not a ggml recording: its name must end in one of {', '.join(ENDINGS)}")
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise KvvizError(f"{path} cannot be read: {error.strerror or error}") from None
    return read_dot(path) if path.name.endswith(".dot") else read_lines(path)
