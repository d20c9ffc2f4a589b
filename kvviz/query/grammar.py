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

import re
from typing import Any, NamedTuple

from kvviz.trace.blockers import BlockerCode
from kvviz.trace.outcome import DECISIONS

LONGEST = 500
"""The maximum number of characters of a query."""
DEEPEST = 20
"""The maximum nesting of parentheses."""

HAZARDS = ("hidden", "broken", "RAW", "WAR", "WAW")
"""States of a step and another one that touches the same bytes, if no edge orders them."""

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
"""Words that mean a decision on their own; a single one also finds names that contain it."""

_DECIMAL = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "k": 10**3, "M": 10**6, "G": 10**9}
UNITS = {**_DECIMAL, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
"""Units of bytes, in upper or lower case."""

EQUAL = (":", "=", "!=")
ALL_SIGNS = (*EQUAL, ">", ">=", "<", "<=")


class Kind(NamedTuple):
    """The values of a field, with their signs; ``about`` is the text of an error."""

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
    """A field of steps. ``kind``: one of `KINDS`. ``sorts``: whether steps can be sorted by it. ``choices``: of a
    choice."""

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


BLANK = " \t\r\n\u00a0"
_QUOTES = "\"'"
# Separators of titles and frame paths have no meaning.
_BETWEEN = ("·", "›")
_TEST = re.compile(rf"([A-Za-z_][A-Za-z0-9_]*)(?:[{BLANK}]*(==|!=|>=|<=|=|>|<)[{BLANK}]*|:)")
_VALUE = re.compile(rf"[^{BLANK}()|]*")
_BARE = re.compile(rf"[^{BLANK}()]+")
_UNIT = re.compile(rf"[{BLANK}]+([A-Za-z]+)(?=[{BLANK}()]|$)")
_NUMERIC = re.compile(r"[0-9][0-9,]*(?:\.[0-9]+)?$")


class Unclear(Exception):
    """What is wrong with a query."""


class Given(NamedTuple):
    text: str
    quoted: bool


class Token(NamedTuple):
    """A word of a query with its sort: a bracket, ``-``, ``or``, ``word``, ``quoted``, ``test`` or ``order``."""

    sort: str
    text: str
    field: str = ""
    sign: str = ""
    values: tuple[Given, ...] = ()


def words_of(text: str) -> list[Token]:
    found: list[Token] = []
    at, end = 0, len(text)
    while at < end:
        letter = text[at]
        if letter in BLANK:
            at += 1
        elif letter in "()":
            found.append(Token(letter, letter))
            at += 1
        elif letter in "-−" and at + 1 < end and text[at + 1] not in BLANK + ")":
            found.append(Token("-", letter))
            at += 1
        elif letter in _QUOTES:
            given, at = _quoted(text, at)
            found.append(Token("quoted", given))
        elif match := _TEST.match(text, at):
            token, at = _test(text, match)
            found.append(token)
        else:
            match = _BARE.match(text, at)
            assert match is not None
            at = match.end()
            found += _bare(match[0])
    return found


def is_unit(text: str) -> bool:
    return text.lower() in _UNIT_NAMES


def is_numeric(text: str) -> bool:
    return _NUMERIC.match(text) is not None


_UNIT_NAMES = frozenset(unit.lower() for unit in UNITS)


def _bare(text: str) -> list[Token]:
    if text in "-−":
        raise Unclear(f'nothing stands behind "{text}"')
    sign = next((sign for sign in sorted(ALL_SIGNS, key=len, reverse=True) if text.startswith(sign)), "")
    if sign:
        raise Unclear(f'no field stands before "{sign}" in "{text}"; put quotes around a text to search for it')
    if text in _BETWEEN or text.lower() == "and":
        return []
    return [Token("or" if text.lower() == "or" else "word", text)]


def _quoted(text: str, at: int) -> tuple[str, int]:
    close = text.find(text[at], at + 1)
    if close < 0:
        raise Unclear(f"the quote that begins with {text[at:]} has no end")
    if close == at + 1:
        raise Unclear("there is nothing between the quotes")
    return text[at + 1 : close], close + 1


def _test(text: str, match: re.Match[str]) -> tuple[Token, int]:
    written, sign = match[1], match[2] or ":"
    sign = "=" if sign == "==" else sign
    field = known(written)
    at = match.end()
    values: list[Given] = []
    while True:
        if text[at : at + 1] and text[at] in _QUOTES:
            given, at = _quoted(text, at)
            values.append(Given(given, True))
        else:
            plain = _VALUE.match(text, at)
            assert plain is not None
            at = plain.end()
            if not plain[0]:
                raise Unclear(f'nothing stands behind "{match[0].strip(BLANK)}"')
            values.append(Given(plain[0], False))
        if text[at : at + 1] != "|":
            break
        at += 1
    last = values[-1]
    if field in BY_NAME and BY_NAME[field].kind == "bytes" and not last.quoted and is_numeric(last.text):
        unit = _UNIT.match(text, at)
        if unit and is_unit(unit[1]):
            values[-1] = Given(last.text + unit[1], False)
            at = unit.end()
    token = Token("order" if field in ORDERS else "test", match[0].strip(BLANK), field, sign, tuple(values))
    return token, at


def known(written: str) -> str:
    name = written.lower()
    if name in ORDERS:
        return name
    if name not in BY_NAME:
        guess = meant(name, [*BY_NAME, *ORDERS])
        fields = ", ".join(field.name for field in FIELDS)
        raise Unclear(
            f'there is no field "{written}"{guess}; there are {fields}, {", ".join(ORDERS)}; '
            "put quotes around a text to search for it"
        )
    return BY_NAME[name].name


def meant(word: str, names: list[str]) -> str:
    """A question with the name nearest to a word, if one is near enough."""
    best, least = "", max(1, len(word) // 3) + 1
    for name in names:
        away = 1 if len(word) > 2 and name.startswith(word) else _distance(word, name)
        if away < least and " " not in name:
            best, least = name, away
    return f'; did you mean "{best}"' if best else ""


def _distance(a: str, b: str) -> int:
    """How many letters have to be changed, added, removed or swapped with the next to turn one word into the other."""
    rows = [list(range(len(b) + 1))]
    for i, left in enumerate(a, 1):
        row = [i]
        for j, right in enumerate(b, 1):
            cost = min(rows[-1][j] + 1, row[-1] + 1, rows[-1][j - 1] + (left != right))
            if i > 1 and j > 1 and left == b[j - 2] and a[i - 2] == right:
                cost = min(cost, rows[-2][j - 2] + 1)
            row.append(cost)
        rows.append(row)
    return rows[-1][-1]
