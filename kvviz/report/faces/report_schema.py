"""The JSON Schema of ``kvviz report --json`` and `Report.to_dict`, by which a report is encoded, too.

The version increases when a key is removed, or changes its meaning or type. Keys may be added in the same version, so
readers must ignore unknown ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from kvviz.caches.cache_warnings import CacheWarning
from kvviz.explain.retention import Held, Peak, PeakPart
from kvviz.explain.summary import Counts
from kvviz.report.finding import KINDS
from kvviz.trace.records import Cache, CacheRun, Run

NAME, VERSION = "kvviz.report", 2

_INT, _TEXT, _BOOL = {"type": "integer"}, {"type": "string"}, {"type": "boolean"}
_BYTES = {"type": "integer", "minimum": 0, "description": "bytes"}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def _many(items: dict[str, Any], about: str = "") -> dict[str, Any]:
    return {"type": "array", "items": items, **({"description": about} if about else {})}


def _object(about: str = "", /, **keys: dict[str, Any]) -> dict[str, Any]:
    described = {"description": about} if about else {}
    return {"type": "object", **described, "properties": keys, "required": list(keys)}


def _of(cls: type, *left_out: str, **others: dict[str, Any]) -> dict[str, Any]:
    """The schema of a dataclass, by the types of its fields. ``others``: keys that it has beside them, or instead."""
    types = get_type_hints(cls)
    names = [field.name for field in fields(cls) if field.name not in (*left_out, *others)]
    return _object(**{name: _typed(types[name]) for name in names}, **others)


def _typed(kind: Any) -> dict[str, Any]:
    """The schema of a type; of rows of numbers only that they are a list."""
    parts = get_args(kind)
    if NoneType in parts:
        return _or_null(_typed(parts[0]))
    return {int: _INT, str: _TEXT}.get(kind) or ({"type": "array"} if get_origin(kind) is tuple else _of(kind))


_FIX = _or_null({"$ref": "#/$defs/fix"})
_COSTS = {
    "bytes": _BYTES,
    "allocated": _BYTES,
    "copied": _BYTES,
    "peak_effect": {**_or_null(_INT), "description": "bytes that the peak is lower with the fix; null: no fix"},
}
_RUN_COSTS = dict.fromkeys(
    ("peak_bytes", "bytes_allocated", "bytes_written", "bytes_copied", "bytes_moved_outside"), _BYTES
)

REPORT_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": NAME,
    **_object(
        "What a run of a model did to memory. All byte counts are exact, and all lists are complete.",
        schema=_object("name and version of this schema", name={"const": NAME}, version={"const": VERSION}),
        model=_object(
            title=_TEXT,
            nodes=_INT,
            nodes_with_bodies=_INT,
            weights=_INT,
            weight_bytes=_BYTES,
            opsets={"type": "object", "additionalProperties": _INT},
        ),
        policy=_TEXT,
        dry={**_BOOL, "description": "only layouts were worked out: prompt and tokens are empty"},
        interrupted=_BOOL,
        steps=_INT,
        runs_kept={**_INT, "description": "runs whose steps were kept"},
        totals=_object("totals of all runs", **_RUN_COSTS),
        in_place={**_of(Counts), "description": "numbers of steps, by how they ran"},
        runs=_many(
            _of(Run, "index", "first", "last", label=_TEXT, steps=_INT, kept=_BOOL, **_RUN_COSTS),
            "run 0 is the prompt, run k decode step k",
        ),
        prompt=_many(_INT),
        tokens=_many(_INT),
        findings=_many(
            _object(
                kind={"enum": list(KINDS)},
                title=_TEXT,
                where=_TEXT,
                example={**_TEXT, "description": "the sentence of one of its steps, or what else explains it"},
                bytes=_INT,
                steps=_INT,
                step={**_or_null(_INT), "description": "the step to look at first"},
                selection=_or_null(_many(_TEXT)),
                scope={**_TEXT, "description": "which runs bytes and steps are of"},
                calm={**_BOOL, "description": "nothing is to be done"},
                query={**_TEXT, "description": "finds its steps"},
                reasons={**_many(_TEXT), "description": "of missed ops: codes of the blockers"},
                peak={**_or_null(_INT), "description": "bytes that the fix lowers the peak by; null: no fix"},
                fix=_FIX,
                saves={**_or_null(_many(_INT)), "description": "bytes that the fix saves, and at how many steps"},
                left={**_or_null(_INT), "description": "of a peak: at most so many bytes with the fix"},
            ),
            "what endangers results first, then by cost",
        ),
        groups=_many(
            _object(
                role=_TEXT,
                op_type=_TEXT,
                reasons=_many(_TEXT),
                layers=_many(_INT),
                runs=_many(_INT),
                times=_INT,
                **_COSTS,
                nodes=_many(_object(frame=_many(_TEXT), node=_TEXT)),
            ),
            "missed ops of the same role for the same reasons, most bytes first",
        ),
        missed=_many(
            _object(
                node=_TEXT,
                op_type=_TEXT,
                frame=_many(_TEXT),
                steps=_many(_INT),
                step=_INT,
                **_COSTS,
                blockers=_many(
                    _object(
                        code=_TEXT,
                        input=_or_null(_TEXT),
                        culprit=_or_null(_TEXT),
                        message=_TEXT,
                        bytes=_or_null(_INT),
                        fix=_FIX,
                    )
                ),
            ),
            "nodes that could have run in place by kind and did not, most bytes first",
        ),
        peak=_of(Peak, parts=_many(_of(PeakPart)), groups={"type": "object", "additionalProperties": _INT}),
        other_order=_or_null(
            _object(
                "an order of ops with a lower peak; no order has a lower one than least",
                name=_TEXT,
                bytes=_BYTES,
                least=_BYTES,
                fix=_FIX,
            )
        ),
        held_too_long=_many(_of(Held)),
        cache_warnings=_many(_of(CacheWarning)),
        cache_findings=_many(_object(kind=_TEXT, caches=_many(_TEXT), run=_INT, bytes=_INT, sentence=_TEXT, fix=_FIX)),
        caches=_many(_of(Cache, runs=_many(_of(CacheRun)))),
    ),
    "$defs": {
        "fix": _object(
            kind=_TEXT, label=_TEXT, sentence=_TEXT, code=_TEXT, saves={**_INT, "description": "at this step"}
        )
    },
}


def encoded(value: Any, schema: Mapping[str, Any] = REPORT_SCHEMA) -> Any:
    """A value as plain values for JSON: of an object the keys or attributes that its schema names."""
    if "anyOf" in schema:
        return None if value is None else encoded(value, schema["anyOf"][0])
    if "$ref" in schema:
        return encoded(value, REPORT_SCHEMA["$defs"]["fix"])
    if "items" in schema:
        return type(value)([encoded(one, schema["items"]) for one in value])
    if "properties" not in schema:
        return str(value) if schema.get("type") == "string" else value
    of = value.__getitem__ if isinstance(value, Mapping) else partial(getattr, value)
    return {name: encoded(of(name), part) for name, part in schema["properties"].items()}
