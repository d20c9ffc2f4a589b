"""Markdown from templates. The page fills in the same ones, which are part of the payload's table of codes.

A template is a list of blocks ``[each, head, lines]``. A placeholder is ``{name}`` for text, ``{name|code}`` for a
name, ``{name|raw}`` inside a fence. Without ``each``, a line is left out if a fact of it is empty, and a block if none
of its lines is left; else the lines are repeated for every entry of the fact ``each``.

Invariant: no name from a model becomes markup, breaks out of a table cell, or mentions a GitHub user.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kvviz.trace.units import visible

FIGURES: dict[str, tuple[str, str]] = {
    "live": ("live while the op ran", "bytes alive while this op ran: what it reads, makes, and what others hold"),
    "held": ("held after", "bytes still alive when this op was over, and what it was the last to need was freed"),
    "peak": ("peak", "the largest number of bytes alive while any op ran"),
    "allocated": ("allocated", "bytes of new capacity"),
    "copied": ("copied", "the part of what was written that existed before and was only moved"),
    "written": ("written", "bytes that kernels stored"),
    "missed": ("missed", "bytes that ops spent which could have run in place, or have been views"),
}
"""By key: the name, and what it counts. Weights and arrays of the caller count as alive."""


Template = Sequence[tuple[str, Sequence[str], Sequence[str]]]

_MODEL = ("| model | {file|code} |", "| SHA-256 of the file | {sha256|code} |", "| kvviz | {version} |")
_POLICY = "| policy | {policy} |"
_AGAIN: Template = [("", ["To see it again:", "", "```python"], ["{again|raw}\n```"])]
_FIX = ("fixes", (), ("**Fix: {label}.** {of}{sentence}\n\n```python\n{code|raw}\n```",))
_TABLE = ("| | |", "| --- | --- |")

STEP: Template = [
    ("", (), ("### Step {step}: {op}",)),
    ("", (), ("{sentence}",)),
    (
        "",
        _TABLE,
        (
            "| node | {node|code} |",
            "| where | {where} |",
            "| decision | {decision} |",
            "| rule | {rule} |",
            f"| {FIGURES['allocated'][0]} | {{allocated}} |",
            f"| {FIGURES['copied'][0]} | {{copied}} |",
            f"| {FIGURES['written'][0]} | {{written}} |",
            f"| {FIGURES['live'][0]} | {{live}} |",
            f"| {FIGURES['held'][0]} | {{held}} |",
            "| the same miss | {repeated} |",
            *_MODEL,
            _POLICY,
        ),
    ),
    (
        "blockers",
        ("| blocked by | input | reason |", "| --- | --- | --- |"),
        ("| {code|code} | {input|code} | {message} |",),
    ),
    _FIX,
    *_AGAIN,
]
STORAGE: Template = [
    ("", (), ("### Buffer {buffer}: {size}",)),
    (
        "",
        _TABLE,
        (
            "| first value | {name|code} |",
            "| owner | {owner} |",
            "| made | {made} |",
            "| freed | {freed} |",
            "| held too long | {reason} |",
            *_MODEL,
            _POLICY,
        ),
    ),
    *_AGAIN,
]
CACHE: Template = [
    ("", (), ("### Cache {name|code}",)),
    (
        "",
        _TABLE,
        (
            "| protocol | {protocol} |",
            "| in | {where} |",
            "| valid rows | {valid} |",
            "| reserved rows | {capacity} |",
            "| copied | {copied} |",
            "| written | {written} |",
            *_MODEL,
            _POLICY,
        ),
    ),
    *_AGAIN,
]
REPORT: Template = [
    ("", (), ("### {title}",)),
    (
        "",
        _TABLE,
        (
            "| steps | {steps} |",
            "| peak | {peak} |",
            "| allocated | {allocated} |",
            "| copied | {copied} |",
            "| ran in place | {in_place} |",
            "| missed | {missed} |",
            "| caches | {without} |",
            *_MODEL,
            _POLICY,
        ),
    ),
    (
        "findings",
        ("| bytes | finding | where | fix |", "| ---: | --- | --- | --- |"),
        ("| {bytes} | {title} | {where} | {change} |",),
    ),
    _FIX,
    *_AGAIN,
]
# What the page fills in itself.
TEMPLATES: dict[str, Template] = {"step": STEP, "storage": STORAGE, "cache": CACHE}

_PLACE = re.compile(r"\{(\w+)(?:\|(\w+))?\}")
# An underscore within a word is no markup.
_SIGNS = re.compile(r"([\\`*\[\]<>|~&$]|(?<![^\W_])_|_(?![^\W_]))")
# GitHub would notify a user, or link an issue.
_CALLS = re.compile(r"@(?=\w)|#(?=\d)")


def text(raw: str) -> str:
    """Text escaped for Markdown.

    Examples
    --------
    >>> text("a|b_c <b> @me #1")
    'a\\\\|b_c \\\\<b\\\\> @<!-- -->me #<!-- -->1'
    """
    return _CALLS.sub(r"\g<0><!-- -->", _SIGNS.sub(r"\\\1", visible(raw)))


def code(raw: str) -> str:
    """A name between backticks, with more of them if the name contains some; empty for an empty name.

    Examples
    --------
    >>> code("a|b"), code("a`b"), code("")
    ('`a\\\\|b`', '``a`b``', '')
    """
    if not raw:
        return ""
    shown = visible(raw)
    fence = "`" * (max((len(run) for run in re.findall("`+", shown)), default=0) + 1)
    room = " " if shown[0] in "` " or shown[-1] in "` " else ""
    return f"{fence}{room}{shown}{room}{fence}".replace("|", "\\|")


def filled(template: Template, facts: Mapping[str, Any]) -> str:
    """The text of a template; ``facts``: strings, and under an ``each`` a list of such mappings."""
    blocks = []
    for each, head, lines in template:
        filled_lines = (
            [_line(line, entry) for entry in facts.get(each, ()) for line in lines] if each else _known(lines, facts)
        )
        if filled_lines:
            blocks.append("\n".join([*head, *filled_lines]) if head or not each else "\n\n".join(filled_lines))
    return "\n\n".join(blocks) + "\n"


def _known(lines: Sequence[str], facts: Mapping[str, Any]) -> list[str]:
    return [_line(line, facts) for line in lines if all(facts.get(name) for name, _ in _PLACE.findall(line))]


def _line(line: str, facts: Mapping[str, Any]) -> str:
    ways: dict[str, Callable[[str], str]] = {"": text, "code": code, "raw": str}
    return _PLACE.sub(lambda place: ways[place[2] or ""](str(facts.get(place[1], ""))), line)
