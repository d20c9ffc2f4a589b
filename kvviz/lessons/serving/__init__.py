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
from kvviz.lessons.serving.paged_server import WAYS, LoadRun, Moment, PagedServer, Request, request_load, serve_load

__all__ = ["WAYS", "Decoded", "LoadRun", "Moment", "PagedServer", "Pass", "Request", "Speculation"]
__all__ += ["empty_rows", "forward", "in_bits", "repeat_draft", "request_load", "roll_back", "serve_load", "sinks"]
__all__ += ["speculate", "take", "tell"]
