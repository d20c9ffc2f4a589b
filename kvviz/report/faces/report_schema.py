"""The JSON Schema of ``kvviz report --json`` and `Report.to_dict`.

The version increases when a key is removed, or changes its meaning or type. Keys may be added in the same version, so
readers must ignore unknown ones.
"""

from __future__ import annotations

from typing import Any

from kvviz.report.finding import KINDS

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
        in_place=_object(
            "numbers of steps, by how they ran",
            **dict.fromkeys(("in_place", "views", "missed", "cannot", "bodies", "elsewhere"), _INT),
            missed_bytes=_BYTES,
            cannot_bytes=_BYTES,
            elsewhere_copied=_BYTES,
        ),
        runs=_many(
            _object(label=_TEXT, steps=_INT, kept=_BOOL, token=_or_null(_INT), text=_or_null(_TEXT), **_RUN_COSTS),
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
        peak=_object(
            bytes=_BYTES,
            step=_or_null(_INT),
            run=_or_null(_INT),
            parts=_many(_object(storage=_or_null(_INT), name=_TEXT, origin=_TEXT, bytes=_INT, group=_TEXT)),
            groups={"type": "object", "additionalProperties": _INT},
        ),
        other_order=_or_null(
            _object(
                "an order of ops with a lower peak; no order has a lower one than least",
                name=_TEXT,
                bytes=_BYTES,
                least=_BYTES,
                fix=_FIX,
            )
        ),
        held_too_long=_many(_object(name=_TEXT, storage=_INT, bytes=_BYTES, reason=_TEXT)),
        cache_warnings=_many(_object(kind=_TEXT, cache=_TEXT, run=_INT, runs=_INT, sentence=_TEXT)),
        cache_findings=_many(_object(kind=_TEXT, caches=_many(_TEXT), run=_INT, bytes=_INT, sentence=_TEXT, fix=_FIX)),
        caches=_many(
            _object(
                name=_TEXT,
                input=_TEXT,
                output=_TEXT,
                protocol=_TEXT,
                axis=_or_null(_INT),
                runs=_many(
                    _object(capacity=_or_null(_INT), valid=_or_null(_INT), bytes_copied=_BYTES, bytes_written=_BYTES)
                ),
            )
        ),
    ),
    "$defs": {
        "fix": _object(
            kind=_TEXT, label=_TEXT, sentence=_TEXT, code=_TEXT, saves={**_INT, "description": "at this step"}
        )
    },
}
