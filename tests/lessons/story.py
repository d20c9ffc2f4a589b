"""The storyteller, its vocabulary, and the story that lessons tell with it."""

import json
from typing import Any

import kvviz
from tests.graph.build import MODELS

STORYTELLER = MODELS / "storyteller"
ROOT = MODELS.parents[1]
WORDS: list[str] = json.loads((STORYTELLER / "vocab.json").read_text())
PROMPT = "once upon a time there was a brave owl named rosa ."
# Bytes of a row of all caches: three layers, keys and values, two heads of 16 floats.
ROW = 3 * 2 * 2 * 16 * 4


def story(form: str, words: int, **options: Any) -> kvviz.Trace:
    """The beginning of the story, told by one of the exported forms."""
    return kvviz.decode(STORYTELLER / form / "model.onnx", PROMPT, words, tokenizer=WORDS, progress=False, **options)
