"""The little markup of questions and captions: `code`, *emphasis*, **strong**; everything else is plain text."""

from __future__ import annotations

import re
from html import escape

# A star opens before a letter and closes behind one: ``2**3`` and ``*.onnx`` are plain.
_STARRED = r"(?<![\w*]){0}([^*\s](?:[^*]*[^*\s])?){0}(?![\w*])"
_MARKS = re.compile("|".join((r"`([^`]+)`", _STARRED.format(r"\*\*"), _STARRED.format(r"\*"))))


def rich_html(text: str) -> str:
    """As HTML, escaped."""
    made, at = [], 0
    for found in _MARKS.finditer(text):
        made.append(escape(text[at : found.start()]))
        tag = {1: "code", 2: "b", 3: "em"}[found.lastindex or 1]
        made.append(f"<{tag}>{escape(found[found.lastindex or 1])}</{tag}>")
        at = found.end()
    return "".join([*made, escape(text[at:])])
