"""The query language as one table, which the page reads too: fields with their kinds, words for decisions, units.

    query   = some ("or" some)*
    some    = one+                                     all of them hold
    one     = "-"? (test | word | quoted | "(" query ")")
    test    = field sign value ("|" value)*            any of the values
    sign    = ":" | "=" | "!=" | ">" | ">=" | "<" | "<="
    order   = "sort:" "-"? field | "limit:" number     anywhere outside parentheses

What the page displays may be typed as it stands there: ``layer 3``, ``decode 5``, ``in place``, ``copied 2,048 B``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kvviz.trace.blockers import BlockerCode
from kvviz.trace.outcome import DECISIONS

LONGEST = 500
"""Characters of a query."""
DEEPEST = 20
"""Parentheses inside each other."""

HAZARDS = ("hidden", "broken", "RAW", "WAR", "WAW")
"""What can be said of a step and another one that touches the same bytes, where no edge keeps them in order."""

WORDS = {
    "missed": "missed",
    "not in place": "missed",
    "in place": "in_place",
    "in_place": "in_place",
    "in-place": "in_place",
    "elsewhere": "elsewhere",
    "called in place": "elsewhere",
    "copied": "copied",
    "view": "view",
    "foreign": "foreign",
    "new buffer": "new",
}
"""Words that mean a decision where they stand alone; a single one also finds names that it is part of."""

_DECIMAL = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "k": 10**3, "M": 10**6, "G": 10**9}
UNITS = {**_DECIMAL, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
"""Of bytes, in any case of letters."""

EQUAL = (":", "=", "!=")
ALL_SIGNS = (*EQUAL, ">", ">=", "<", "<=")


class Kind(NamedTuple):
    """What may stand behind a field, with the signs that go with it; ``about`` is said where something else does."""

    name: str
    about: str
    signs: tuple[str, ...]


KINDS = (
    Kind("number", "a number, like 3 or 2..5", ALL_SIGNS),
    Kind("bytes", "bytes, like 512, 2kB or 1.5MB..2MB", ALL_SIGNS),
    Kind("run", "the number of a run, its label or its word", ALL_SIGNS),
    Kind("word", "a word, in any case of letters; * stands for any letters", EQUAL),
    Kind("text", "part of a text, or with = all of it; * stands for any letters", EQUAL),
    Kind("buffer", "a buffer, like B12 or B12.3", EQUAL),
    Kind("choice", "one of a list", EQUAL),
)


class Field(NamedTuple):
    """What can be asked of a step.

    ``kind``: one of `KINDS`.
    ``sorts``: whether steps can be put in its order.
    ``choices``: of a choice.
    """

    name: str
    kind: str
    about: str
    aliases: tuple[str, ...] = ()
    sorts: bool = True
    choices: tuple[str, ...] = ()


FIELDS = (
    Field("step", "number", "number of the step in the whole recording", ("index",)),
    Field("run", "run", "the run: its number, its label or the word that it made", ("token", "decode", "decode step")),
    Field("word", "word", "the word that the run made", ("text",)),
    Field("op", "word", "op type, with or without its domain", ("op_type", "type")),
    Field("name", "text", "name of the node", ("node",)),
    Field("scope", "text", "module path of the node", ("module", "path")),
    Field("block", "text", "title of the block of the graph", ("title",)),
    Field("layer", "number", "number of the repeated layer that the node belongs to"),
    Field("role", "text", "place of the node inside its layer, the same in all layers"),
    Field("value", "text", "name of an input or output", ("tensor",), False),
    Field("buffer", "buffer", "the op reads or writes it", ("storage",)),
    Field("reads", "buffer", "the op reads it", (), False),
    Field("writes", "buffer", "an output lies in it", (), False),
    Field("frees", "buffer", "it died with the op", (), False),
    Field("cache", "text", "the op touches the buffer in which this cache came into the run or left it", (), False),
    Field("decision", "choice", "how the step ended", ("is",), True, DECISIONS),
    Field(
        "blocker",
        "choice",
        "a reason why it did not run in place",
        ("why", "reason"),
        True,
        tuple(code.value for code in BlockerCode),
    ),
    Field(
        "hazard",
        "choice",
        "no edge orders it and another step on the same bytes; where the recording says what ops touch",
        ("kind",),
        True,
        HAZARDS,
    ),
    Field("how", "word", "where an output went: new, in place, view, append, pool, passed", ("memory",)),
    Field("allocated", "bytes", "new capacity", ("alloc", "allocates")),
    Field("copied", "bytes", "bytes that the op only moved", ("copies", "copy")),
    Field("written", "bytes", "bytes that the op stored", ("write",)),
    Field("live", "bytes", "bytes alive while the op ran", ("live_bytes",)),
    Field("freed", "bytes", "bytes of the buffers that died with the op"),
    Field("bytes", "bytes", "size of the outputs", ("size", "nbytes")),
    Field(
        "missed", "bytes", "what the op spent because it was not in place; 0 where it missed nothing", ("missed_bytes",)
    ),
    Field("frame", "text", "path of the frame, main for the outermost", ("body",)),
    Field("iteration", "number", "turn of the innermost loop around the op", ("turn",)),
    Field("depth", "number", "how many bodies the op stands in"),
    Field("shape", "word", "shape of an output, like [1,4,16] or 1x*x16", ("dims",)),
    Field("dtype", "word", "element type of an output"),
)
"""In the order in which they are listed."""

ORDERS = ("sort", "limit")
BY_NAME = {name: field for field in FIELDS for name in (field.name, *field.aliases)}
KIND = {kind.name: kind for kind in KINDS}

EXAMPLES = (
    "op:Concat layer:3 copied>0",
    "missed -op:Reshape sort:-missed limit:10",
    "why:NO_CAPACITY token>5",
    "B345.2",
    "hidden layer:0",
    "live>=1.5MB or allocated>100kB",
)


def header() -> dict[str, Any]:
    """The table as the page reads it."""
    return {
        "longest": LONGEST,
        "deepest": DEEPEST,
        "fields": [field._asdict() for field in FIELDS],
        "kinds": [kind._asdict() for kind in KINDS],
        "words": WORDS,
        "units": UNITS,
        "examples": EXAMPLES,
    }


def manual() -> str:
    """The table for a terminal."""
    lines = ["A word finds names, decisions, reasons, decoded words and buffers. A field has a sign and a value:", ""]
    for field in FIELDS:
        names = ", ".join((field.name, *(name for name in field.aliases if " " not in name)))
        lines.append(f"  {names:34} {field.kind:7} {field.about}")
    lines += ["", *(f"  {kind.name:7} {' '.join(kind.signs):18} {kind.about}" for kind in KINDS)]
    choices = next(field.choices for field in FIELDS if field.name == "blocker")
    lines += ["", f"  decision: {', '.join(DECISIONS)}", f"  blocker: {', '.join(choices)}"]
    lines.append(f"  hazard: {', '.join(HAZARDS)}")
    lines += [
        "",
        '  a b: both hold; a or b: at least one holds; -a: not a; "a b": exactly this text; ( ): a group',
        "  a:x|y: x or y; a:2..5: from 2 to 5; sort:-field: the largest first; limit:10: at most 10 steps",
    ]
    return "\n".join([*lines, "", "examples:", *(f"  {example}" for example in EXAMPLES)])
