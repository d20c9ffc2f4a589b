"""A trained model that tells a story, from the package itself: a Llama of three layers that knows 118 words.

The model is ``assets/models/storyteller/concat`` of the repository (its README says how it was made), packed by
`kvviz.demo.packed_weights`.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files

from kvviz.decode.public_runs import decode
from kvviz.demo.packed_weights import unpack
from kvviz.graph.load import load
from kvviz.graph.model import Graph
from kvviz.text.word_list import Words
from kvviz.trace.recording import Trace

BEGINNING = "once upon a time there was a brave owl named rosa ."
# A story has some seventy words; one that does not end is cut.
_LONGEST = 96


@cache
def model() -> Graph:
    """The model; its cache grows by Concat."""
    return load(unpack(files("kvviz.demo").joinpath("storyteller.onnx.xz").read_bytes()), name="storyteller")


@cache
def vocabulary() -> Words:
    """Its 118 words."""
    return Words(json.loads(files("kvviz.demo").joinpath("vocab.json").read_text("utf-8")))


def story(beginning: str = BEGINNING, progress: bool = False) -> Trace:
    """Let it tell a story to the end, and record how.

    >>> print(*story().words)                                                   # doctest: +SKIP
    <s> once upon a time there was a brave owl named rosa . rosa lived in a castle . …
    """
    words = vocabulary()
    trace = decode(model(), beginning, _LONGEST, tokenizer=words, stop_tokens=words.stop_tokens, progress=progress)
    trace.title = "storyteller"
    return trace
