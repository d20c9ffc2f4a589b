"""What serving systems do with KV caches, each in a few lines that run on a small model."""

from kvviz.lessons.serving.forward_pass import (
    Decoded,
    Pass,
    Speculation,
    empty_rows,
    forward,
    in_bits,
    repeat_draft,
    roll_back,
    sinks,
    speculate,
    take,
    tell,
)
from kvviz.lessons.serving.paged_server import Moment, PagedServer, Request

__all__ = ["Decoded", "Moment", "PagedServer", "Pass", "Request", "Speculation", "empty_rows", "forward", "in_bits"]
__all__ += ["repeat_draft", "roll_back", "sinks", "speculate", "take", "tell"]
