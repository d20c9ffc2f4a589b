"""Where arrays lie, and how far they may grow."""

import mmap

import numpy as np
import pytest

import kvviz
from kvviz.engine.ledger import Ledger, Roots
from kvviz.memory import storage
from kvviz.memory.storage import Reserved, address, find_room, root_of
from kvviz.trace.schema.events import Storages

WHOLE = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
ARRAYS = {
    "an array": WHOLE,
    "a part": WHOLE[1, 1:, ::2],
    "a transposed one": WHOLE.T,
    "one that runs backwards": WHOLE[::-1],
    "one number": WHOLE[1, 2, 3:],
    "a scalar": np.array(2.5),
    "nothing": WHOLE[:, :0],
    "a subclass": WHOLE.view(Reserved),
    "a reserved one": kvviz.reserve(WHOLE, 1, 9),
    "a mapped one": np.frombuffer(mmap.mmap(-1, 64), np.int8)[5:],
    "objects": np.array(["a", None], object),
}


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("asked", [False, True], ids=["seen", "asked"])
def test_an_address_is_the_one_that_numpy_tells(name: str, asked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if asked:
        # As on an implementation of Python whose objects look otherwise.
        monkeypatch.setattr(storage, "_SEEN_AT", 0)
    array = ARRAYS[name]
    assert address(array) == array.__array_interface__["data"][0]


def test_only_what_begins_its_reserved_block_and_fills_its_other_axes_may_grow() -> None:
    present = kvviz.reserve(WHOLE, 1, 9)
    block = root_of(present)
    room = find_room(block, present)
    assert room is not None and (room.axis, room.rows, room.filled) == (1, 9, 3)
    for part in (present[:, 1:], present[:1], present[..., :3], present[:, ::-1], WHOLE):
        assert find_room(block, part) is None


def test_arrays_over_one_foreign_buffer_are_one_storage_and_others_are_not() -> None:
    # given
    ledger, known, buffer = Ledger(Storages()), Roots(), mmap.mmap(-1, 64)
    first, second, apart = (np.frombuffer(buffer, np.int8, 16, offset) for offset in (0, 8, 32))
    own = np.zeros(16, np.int8)
    # when
    found = [ledger.adopt(array, "caller", False, known) for array in (own, first, second, apart, own[3:], own.copy())]
    # then
    assert found[1] is found[2] and found[0] is found[4]
    assert len({s.id for s in found}) == 4
