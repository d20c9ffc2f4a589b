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
from kvviz.explain.cache_findings import CacheFinding
from kvviz.explain.retention import Held, Peak, PeakPart
from kvviz.explain.summary import Counts, Missed
from kvviz.fixes.fix import Fix
from kvviz.fixes.lower_peak import OtherOrder
from kvviz.report.finding import KINDS, Finding
from kvviz.report.finding_groups import MissedGroup
from kvviz.trace.blockers import Blocker, BlockerCode
from kvviz.trace.records import Cache, CacheRun, Run

NAME, VERSION = "kvviz.report", 2

_INT, _TEXT, _BOOL = {"type": "integer"}, {"type": "string"}, {"type": "boolean"}
_SIMPLE: dict[Any, dict[str, Any]] = dict.fromkeys((str, BlockerCode), _TEXT) | {
    int: _INT,
    bool: _BOOL,
    Fix: {"$ref": "#/$defs/fix"},
    dict[str, int]: {"type": "object", "additionalProperties": _INT},
}
_BYTES = {"type": "integer", "minimum": 0, "description": "bytes"}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def _many(items: dict[str, Any], about: str = "") -> dict[str, Any]:
    return {"type": "array", "items": items, **({"description": about} if about else {})}


def _object(about: str = "", /, **keys: dict[str, Any]) -> dict[str, Any]:
    described = {"description": about} if about else {}
    return {"type": "object", **described, "properties": keys, "required": list(keys)}


def _of(cls: type, names: str = "", **others: dict[str, Any]) -> dict[str, Any]:
    """The schema of a class, by the types of its attributes. ``names``: fields and properties, by default all fields.
    ``others``: keys that it has beside them, or instead."""
    types = get_type_hints(cls)
    keys = names.split() or [field.name for field in fields(cls)]
    own = {name: _typed(types.get(name) or _made(getattr(cls, name))) for name in keys if name not in others}
    return _object(**{name: {**own, **others}[name] for name in dict.fromkeys((*keys, *others))})


def _made(attribute: Any) -> Any:
    """The type of a property."""
    return get_type_hints(getattr(attribute, "fget", None) or attribute.func)["return"]


def _typed(kind: Any) -> dict[str, Any]:
    """The schema of a type; of rows of numbers only that they are a list."""
    parts = get_args(kind)
    if NoneType in parts:
        return _or_null(_typed(parts[0]))
    if get_origin(kind) is tuple:
        return _many(_SIMPLE[parts[0]]) if parts[0] in _SIMPLE else {"type": "array"}
    return _SIMPLE.get(kind) or _of(kind)


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
            _of(Run, "token text", label=_TEXT, steps=_INT, kept=_BOOL, **_RUN_COSTS),
            "run 0 is the prompt, run k decode step k",
        ),
        prompt=_many(_INT),
        tokens=_many(_INT),
        findings=_many(
            _of(
                Finding,
                "kind title where example bytes steps step selection scope calm query reasons peak fix saves left",
                kind={"enum": list(KINDS)},
                example={**_TEXT, "description": "the sentence of one of its steps, or what else explains it"},
                step={**_or_null(_INT), "description": "the step to look at first"},
                scope={**_TEXT, "description": "which runs bytes and steps are of"},
                calm={**_BOOL, "description": "nothing is to be done"},
                query={**_TEXT, "description": "finds its steps"},
                reasons={**_many(_TEXT), "description": "of missed ops: codes of the blockers"},
                peak={**_or_null(_INT), "description": "bytes that the fix lowers the peak by; null: no fix"},
                saves={**_or_null(_many(_INT)), "description": "bytes that the fix saves, and at how many steps"},
                left={**_or_null(_INT), "description": "of a peak: at most so many bytes with the fix"},
            ),
            "what endangers results first, then by cost",
        ),
        groups=_many(
            _of(
                MissedGroup,
                "role op_type reasons layers runs times",
                **_COSTS,
                nodes=_many(_of(Missed, "frame node")),
            ),
            "missed ops of the same role for the same reasons, most bytes first",
        ),
        missed=_many(
            _of(
                Missed,
                "node op_type frame steps step",
                **_COSTS,
                blockers=_many(_of(Blocker, "code input culprit message bytes", fix=_FIX)),
            ),
            "nodes that could have run in place by kind and did not, most bytes first",
        ),
        peak=_of(Peak, "bytes step run parts groups", parts=_many(_of(PeakPart))),
        other_order={
            **_or_null(_of(OtherOrder, "name bytes least fix")),
            "description": "an order of ops with a lower peak; no order has a lower one than least",
        },
        held_too_long=_many(_of(Held)),
        cache_warnings=_many(_of(CacheWarning)),
        cache_findings=_many(_of(CacheFinding, "kind caches run bytes sentence fix")),
        caches=_many(_of(Cache, runs=_many(_of(CacheRun)))),
    ),
    "$defs": {"fix": _of(Fix, "kind label sentence code", saves={**_INT, "description": "at this step"})},
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
