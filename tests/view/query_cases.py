"""Queries, what Python reads of them and which steps they find, for the page's tests to say after it.

``python -m tests.view.query_cases`` (``make golden``) writes them anew to ``assets/widget/test/queries.json.gz``, about
the traces whose payloads lie in ``assets/widget/test/golden``.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import kvviz
from kvviz.errors import KvvizError
from kvviz.query.found_steps import steps_of
from kvviz.query.grammar import DECISIONS, EXAMPLES, FIELDS
from kvviz.query.query_reader import Buffer, Compare, Every, Not, Part, Query, Range, Some, Word, read_query
from kvviz.trace.schema.element_types import dims
from kvviz.view.page_data.payload import Payloads
from tests.view.golden import FOLDER, TRACES

FILE = FOLDER.parent / "queries.json.gz"

FOR_ALL = (
    *EXAMPLES,
    "",
    "   ",
    *DECISIONS,
    *(f"is:{decision}" for decision in DECISIONS),
    "not in place",
    "in place",
    "-in place",
    "called in place",
    "-elsewhere or new buffer",
    "new buffer",
    "-new buffer or copied",
    "is!=missed",
    "is:missed|view",
    "layer 0",
    "layer 1",
    "layer:0|1",
    "role:Concat",
    "role:*MatMul*",
    "layer:0..1",
    "layer>=1",
    "layer!=0",
    "-layer:0",
    "decode 1",
    "decode step 1",
    "prefill",
    "token>0",
    "run:0",
    'run:"decode 1"',
    "run!=0",
    "step:3..9",
    "step 3",
    "step>=10 step<20",
    "7",
    "copied>0",
    "copied > 0",
    "copied > 0 and op == 'Concat'",
    "copied 64 B",
    "allocated:1kB",
    "allocated>=1kB allocated<1,024B",
    "allocated > 1 kB",
    "live<1MiB",
    "written!=0",
    "freed>0 sort:-freed",
    "bytes=64 or bytes=16",
    "missed>0 sort:-missed limit:5",
    "depth>0",
    "depth:1",
    "iteration 1",
    "iteration>=0 sort:-iteration",
    "frame:body",
    "frame=main",
    "frame:*[body:1]*",
    "why:NO_CAPACITY",
    "why:no_capacity|OP_CANNOT",
    "NO_CAPACITY",
    "NOT_LAST_USE",
    "-why:OP_CANNOT",
    "blocker!=OP_CANNOT",
    "hidden",
    "raw",
    "broken",
    "hazard:hidden",
    "kind:raw|WAW",
    "hidden op:MUL_MAT",
    "hazard!=hidden limit:5",
    "-hidden limit:5",
    "shape:[1,4]",
    "shape:1x*",
    "shape:4",
    "[4]",
    "dtype:float32",
    "dtype:int*",
    "how:view",
    'how:"in place"',
    "memory:append|pool",
    "op:add",
    "op:*mul*",
    "op:Con*|Res*",
    "op!=Add",
    "name:0",
    "name:*1",
    "scope:*",
    "block:layer",
    "block:*attn*",
    "value:past",
    "value:*.key",
    "cache:key",
    "cache:0",
    "B1",
    "b2.1",
    "buffer:B3",
    "buffer 3",
    "reads:B3",
    "writes:3",
    "frees:B3",
    "buffer!=B3",
    "(op:Add or op:Mul) -is:missed",
    "((missed))",
    "-(missed or view)",
    "--missed",
    "op:Add or op:Mul or op:Cast",
    "missed view",
    '"layer 1"',
    "'self_attn'",
    "layer 1 · self_attn",
    *(f"sort:{field.name} limit:20" for field in FIELDS if field.sorts),
    *(f"sort:-{field.name} limit:20" for field in FIELDS if field.sorts),
    "sort:op sort:-live",
    "op:Add sort:-live limit:3",
    "limit:4",
)

WRONG = (
    "coppied>3",
    "colour:red",
    "lyer:3",
    "ope:Concat",
    "sotr:op",
    "Identity:0",
    "is:mised",
    "is:inplace",
    "decision:nonsense",
    "why:NO_CAPACITI",
    "why:nocapacity",
    "blocker:xyz",
    "hazard:hiden",
    "kind:layer",
    "copied>",
    "copied>=",
    "op:",
    "op:Add|",
    "op: Add",
    ">5",
    "<s>",
    "=3",
    ":x",
    "layer:three",
    "layer:1.5.2",
    "layer>1..2",
    "copied>2xB",
    "copied:1,00B",
    "live>=lots",
    "op>3",
    "name<=x",
    "buffer>B3",
    "is>missed",
    "buffer:3a",
    "reads:x",
    "run>castle",
    "run>=decode",
    "(a",
    "a)",
    "()",
    "( )",
    "(sort:op)",
    "(missed limit:3)",
    "or",
    "a or",
    "or a",
    "a or or b",
    "(a or )",
    "-",
    "a - b",
    "-or",
    "-)",
    "(-)",
    "-sort:op",
    "-limit:3",
    '"',
    '"abc',
    "'abc\"",
    '""',
    "op:''",
    "sort:colour",
    "sort:-value",
    "sort:frees",
    "sort:-",
    "sort:op|name",
    "sort>op",
    "sort:limit",
    "limit:0",
    "limit:ten",
    "limit:-1",
    "limit:1|2",
    "limit!=3",
    "limit:1234567890",
    "(" * 21 + "a" + ")" * 21,
    "x" * 501,
)


def formed(trace: Any) -> Iterator[str]:
    """Queries from what steps of a trace say, as the page shows it."""
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
    """What is read of all queries, and what they find in these traces."""
    read: dict[str, Any] = {}
    for text in WRONG:
        try:
            read_query(text)
        except KvvizError as error:
            read[text] = str(error).partition(" cannot be read: ")[2]  # what the page shows under the query
        else:
            raise AssertionError(f"{text} was to be refused")
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
    """Write the file."""
    text = json.dumps(cases(TRACES), ensure_ascii=False, separators=(",", ":")).encode()
    FILE.write_bytes(gzip.compress(text, 9, mtime=0))
    print(f"{FILE.name} {FILE.stat().st_size / 1000:.1f} kB")


if __name__ == "__main__":
    main()
