"""What a GGUF file declares is held against its size before memory is taken for it."""

import struct
from pathlib import Path

import pytest

import kvviz
from kvviz.errors import LoadError

HUGE = 1 << 60


def text(value: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(value) if length is None else length) + value


def entry(key: str, kind: int, value: bytes) -> bytes:
    return text(key.encode()) + struct.pack("<I", kind) + value


def header(*entries: bytes, tensors: int = 0, more: int = 0) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, len(entries) + more) + b"".join(entries)


def listed(kind: int, count: int) -> bytes:
    return struct.pack("<IQ", kind, count)


LLAMA = entry("general.architecture", 8, text(b"llama"))
SIZES = {"attention.head_count": 4, "embedding_length": 64, "block_count": 2, "feed_forward_length": 64}
WHOLE = [
    entry(f"llama.{key}", 4, struct.pack("<I", value)) for key, value in {**SIZES, "context_length": 2**32 - 1}.items()
]

DECLARED = {
    "a list of numbers": (header(LLAMA, entry("x", 9, listed(0, HUGE))), "declares .* bytes or more, and has"),
    "a list of texts": (header(LLAMA, entry("x", 9, listed(8, HUGE))), "declares .* bytes or more, and has"),
    "lists in lists": (header(LLAMA, entry("x", 9, listed(9, 1) * 9_000)), "recursion"),
    "a text": (header(entry("general.architecture", 8, text(b"", HUGE))), "declares .* bytes or more, and has"),
    "entries": (header(LLAMA, more=HUGE), "declares .* bytes or more, and has"),
    "tensors": (header(LLAMA, tensors=HUGE), "declares .* bytes or more, and has"),
    "a header cut short": (header(LLAMA, more=1) + b"\1", "declares .* bytes or more, and has"),
    "positions": (header(LLAMA, *WHOLE), "4,294,967,295 positions"),
}


@pytest.mark.parametrize("what", DECLARED)
def test_a_small_file_that_declares_much_is_refused_at_once(what: str, tmp_path: Path) -> None:
    data, says = DECLARED[what]
    path = tmp_path / "bomb.gguf"
    path.write_bytes(data)
    with pytest.raises(LoadError, match=says):
        kvviz.load(path)
