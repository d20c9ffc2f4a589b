"""Queries, what Python reads of them and which steps they find, for the page's tests to say after it.

``python -m tests.view.query_cases`` (``make golden``) writes them anew to ``assets/widget/test/queries.json.gz``, about
the traces whose payloads lie in ``assets/widget/test/golden``.
"""

import gzip
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import kvviz
from kvviz.errors import KvvizError
from kvviz.query.found_steps import steps_of
from kvviz.query.grammar import ALL_SIGNS, DECISIONS, EXAMPLES, FIELDS
from kvviz.query.query_reader import Buffer, Compare, Every, Not, Part, Query, Range, Some, Word, read_query
from kvviz.trace.schema.element_types import dims
from kvviz.view.page_data.payload import Payloads
from tests.view.golden import FOLDER, TRACES

FILE = FOLDER.parent / "queries.json.gz"

# Of each kind: values that it takes and values that it refuses.
VALUES: dict[str, tuple[str, ...]] = {
    "number": ("1", "0..1", "0|1", "three", "1.5.2"),
    "bytes": ("64", "1kB", "1,024B", "1MiB", "512..2kB", "2xB", "1,00B"),
    "run": ("1", "0", '"decode 1"', "castle"),
    "word": ("Add", "*mul*", "Con*|Res*", "float32", "append|pool", "''"),
    "text": ("0", "layer", "*attn*", "main|*[body:1]*", '"self_attn"'),
    "buffer": ("B3", "b2.1", "3", "B1|B2", "3a", "x"),
}
SIGNS = (*ALL_SIGNS, "==")
# What is no comparison of one field, parted by semicolons.
PHRASES = """;   ;not in place;in place;-in place;called in place;-elsewhere or new buffer;-new buffer or copied;
    layer 0;layer:0|1;-layer:0;decode 1;decode step 1;prefill;7;step 3;step>=10 step<20;copied > 0 and op == 'Concat';
    copied 64 B;allocated > 1 kB;live>=1kB live<1,024B;bytes=64 or bytes=16;missed>0 sort:-missed limit:5;iteration 1;
    NO_CAPACITY;-NOT_LAST_USE;hidden;raw;broken;hidden op:MUL_MAT;-hidden limit:5;[4];shape:[1,4];shape:1x*;
    how:"in place";B1;buffer 3;(op:Add or op:Mul) -is:missed;((missed));-(missed or view);--missed;missed view;
    op:Add or op:Mul or op:Cast;"layer 1";'self_attn';layer 1 · self_attn;sort:op sort:-live;limit:4;
    op:Add sort:-live limit:3;op:*dd*d;op:*d*d"""
WRONG_PHRASES = """coppied>3;colour:red;sotr:op;Identity:0;op:Add|;op: Add;>5;<s>;=3;:x;layer>1..2;(a;a);();( );
    (sort:op);(missed limit:3);or;a or;or a;a or or b;(a or );-;a - b;-or;-);(-);-sort:op;-limit:3;";
    "abc;'abc";"";sort:colour;sort:-value;sort:-;sort:op|name;sort>op;sort:limit;limit:0;limit:ten;limit:-1;limit:1|2;limit!=3;
    limit:1234567890"""


def compared() -> Iterator[str]:
    for field in FIELDS:
        values = (*(f"{one[:-1]}|{one}|{one.lower()}" for one in field.choices), *field.choices, "mised")
        first, *others = VALUES.get(field.kind, values)
        yield from (f"{name}:{first}" for name in (field.name, *field.aliases))
        yield from (f"{field.name}{sign}{first} limit:20" for sign in SIGNS)
        yield from (f"{field.name}:{other}" for other in (*others, ""))
        yield from (f"sort:{down}{field.name} limit:20" for down in ("", "-"))


def phrases(text: str) -> list[str]:
    return [phrase.lstrip("\n ") or phrase for phrase in text.split(";")]


def _read(text: str) -> Query | str:
    """A query, or why it is none, as the page shows it."""
    try:
        return read_query(text)
    except KvvizError as error:
        return str(error).partition(" cannot be read: ")[2]


FOR_ALL = (*EXAMPLES, *DECISIONS, *phrases(PHRASES), *(text for text in compared() if isinstance(_read(text), Query)))
WRONG = (
    *phrases(WRONG_PHRASES),
    *(text for text in compared() if isinstance(_read(text), str)),
    "(" * 21 + "a" + ")" * 21,
    "x" * 501,
)


def formed(trace: Any) -> Iterator[str]:
    choose = random.Random(len(trace.steps))
    for step in choose.sample(list(trace.steps), min(6, len(trace.steps))):
        run = trace.runs[step.run]
        yield f"op:{step.op_type} step:{step.index}"
        yield f'name="{step.node}"'
        yield f"live>={step.live_bytes} run:{step.run}"
        yield f"copied {step.copied:,} B"
        if run.text.strip():
            yield f'word:"{run.text.strip()}"'
            yield f'"{run.text.strip()}"'
        for out in step.outs:
            yield out.label
            yield f"writes:{out.label} reads:{out.label}"
            if out.shape is not None:
                yield f"shape:{dims(out.shape)} dtype={out.dtype}"
            yield f'value="{out.name}"'
    for cache in list(trace.caches)[:2]:
        yield f'cache="{cache.name}" sort:step'


def told(part: Part | None) -> Any:
    """A part of a query as the page holds it."""
    match part:
        case Word(text):
            return {"is": "word", "text": text}
        case Not(inner):
            return {"is": "not", "part": told(inner)}
        case Every(parts):
            return {"is": "every", "parts": [told(one) for one in parts]}
        case Some(parts):
            return {"is": "some", "parts": [told(one) for one in parts]}
        case Compare(field, sign, values):
            plain = [list(value) if isinstance(value, (Range, Buffer)) else value for value in values]
            return {"is": "compare", "field": field, "sign": sign, "values": plain}
    return None


def as_read(query: Query) -> dict[str, Any]:
    orders = [{"field": order.field, "down": order.down} for order in query.orders]
    return {"part": told(query.part), "orders": orders, "limit": query.limit}


def summed(places: list[int]) -> list[int]:
    """Some steps in an order, in few numbers: how many, a sum over all, and the first."""
    total = 0
    for i, place in enumerate(places):
        total = (total + (i + 1) * (place + 1)) % 1_000_003
    return [len(places), total, *places[:6]]


def cases(traces: dict[str, Callable[[], kvviz.Trace]]) -> dict[str, Any]:
    read: dict[str, Any] = {text: _read(text) for text in WRONG}
    found: dict[str, Any] = {}
    for name, make in traces.items():
        trace = make()
        kept = _kept(trace)
        place = {step: at for at, step in enumerate(kept)}
        found[name] = {}
        for text in dict.fromkeys((*FOR_ALL, *formed(trace))):
            query = read_query(text)
            read[text] = as_read(query)
            found[name][text] = summed([place[step] for step in steps_of(trace, query)])
    return {"read": read, "found": found}


def _kept(trace: Any) -> list[int]:
    payloads = Payloads(trace)
    payloads.encode(lazy=True)
    assert len(payloads.kept) == len(trace.log), "what the page does not have, it does not find"
    return payloads.kept


def main() -> None:
    text = json.dumps(cases(TRACES), ensure_ascii=False, separators=(",", ":")).encode()
    FILE.write_bytes(gzip.compress(text, 9, mtime=0))
    print(f"{FILE.name} {FILE.stat().st_size / 1000:.1f} kB")


if __name__ == "__main__":
    main()
