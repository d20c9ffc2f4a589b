"""Summaries of recorded values as the bytes that the page reads, as `kvviz.trace.value_summaries` keeps them.

Steps have their numbers in the trace here, since the steps in a payload may change.
"""

from __future__ import annotations

from typing import Any

from kvviz.trace.recording import Trace
from kvviz.trace.value_numbers import ABOVE, BELOW, BINS, EMPTY, NAN, SHADES
from kvviz.trace.value_summaries import COLUMNS, WHOLE
from kvviz.trace.values_view import NotFinite, Values
from kvviz.view.page_data.packed_columns import Columns, pack
from kvviz.view.page_data.payload import FORMAT, run_label

CODES = {"bins": BINS, "shades": SHADES, "empty": EMPTY, "below": BELOW, "above": ABOVE, "nan": NAN, "whole": WHOLE}


def values_payload(trace: Trace, level: int = 6) -> bytes:
    """The values in a recording as compressed bytes; empty if it has none.

    ``level``: of zlib.

    Returns a header with ``about``, one sentence on what is kept; ``first``: the first value with a NaN, and with an
      infinity; ``codes``. The columns are those of `COLUMNS`; 8-bit and 16-bit columns are packed into 32 bits.
    """
    kept = trace.value_summaries
    if kept is None:
        return b""
    columns = Columns()
    for name, (dtype, _) in COLUMNS.items():
        flat = kept.columns[name].ravel()
        if dtype == "<f8":
            columns.floats(name, flat)
        elif dtype == "<i4":
            columns.ints(name, flat)
        else:
            data = flat.astype(dtype).tobytes()
            columns.packed(name, data)
    values = Values(trace, kept)
    header = {
        "format": FORMAT,
        "codes": CODES,
        "about": values.about(),
        "budget": kept.budget,
        "steps": kept.counted.steps,
        "first": {"nan": _position(trace, values.first_nan()), "inf": _position(trace, values.first_inf())},
    }
    return pack(header, columns, level)


def _position(trace: Trace, found: NotFinite | None) -> dict[str, Any] | None:
    if found is None:
        return None
    text = f"{found.op_type} {found.node}" if found.step is not None else f"the input of {run_label(trace, found.run)}"
    return {"step": -1 if found.step is None else found.step, "value": found.value, "text": text}
