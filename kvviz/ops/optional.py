"""Optional values: a value itself, or None."""

from __future__ import annotations

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.registry import op


@op("Optional", views=(0,))
def optional(x=None, *, type=None):
    """The value as an optional; an empty one where there is no input."""
    return x


@op("OptionalGetElement", views=(0,))
def optional_get_element(x):
    """What an optional holds."""
    if x is None:
        raise OpError("the optional is empty, so there is no element to get")
    return x


@op("OptionalHasElement", unread=(0,))
def optional_has_element(x=None):
    """Whether an optional holds anything."""
    return np.array(x is not None)
