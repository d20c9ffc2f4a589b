"""What serving systems do with KV caches, each in a few lines that run on a small model."""

from kvviz.lessons.serving.beams import reorder, reorder_blocks
from kvviz.lessons.serving.eviction import bytes_in_bits, in_bits, recent, sinks, slot_of
from kvviz.lessons.serving.forward_pass import Pass, Told, empty_rows, forward, take, tell
from kvviz.lessons.serving.paged_server import Moment, PagedServer, Request
from kvviz.lessons.serving.speculation import Speculation, repeat_draft, roll_back, speculate

__all__ = [
    "Moment",
    "PagedServer",
    "Pass",
    "Request",
    "Speculation",
    "Told",
    "bytes_in_bits",
    "empty_rows",
    "forward",
    "in_bits",
    "recent",
    "reorder",
    "reorder_blocks",
    "repeat_draft",
    "roll_back",
    "sinks",
    "slot_of",
    "speculate",
    "take",
    "tell",
]
