"""The memory in which a caller gives caches: apart, with room, as parts of one block, or one array under two names."""

from dataclasses import dataclass

import numpy as np

import kvviz
from tests.engine.cache_graphs import ROWS, CacheExample


@dataclass(frozen=True)
class Given:
    """Inputs of one run, and the blocks that they lie in, each with a mask of what the run may write to."""

    feeds: dict[str, np.ndarray]
    blocks: list[tuple[np.ndarray, np.ndarray]]

    def kept(self) -> list[bytes]:
        """The bytes that no run may change."""
        return [block[~may].tobytes() for block, may in self.blocks]


def given(example: CacheExample) -> Given:
    """Arrays for one run, laid out as the example says."""
    arrays, donate = example.inputs, example.donate
    past0, past1 = arrays["past0"], arrays["past1"]
    placed: dict[str, tuple[np.ndarray, tuple]] = {}
    everything = (slice(None),) * 3
    if example.layout == "with room":
        for name, past in (("past0", past0), ("past1", past1)):
            placed[name] = _block(kvviz.reserve(past, 2, past.shape[2] + 3)), everything
    elif example.layout == "a part of the other":
        placed["past0"] = _block(kvviz.reserve(past0, 2, ROWS + 3)), (..., slice(0, ROWS), slice(None))
        placed["past1"] = placed["past0"][0], (..., slice(0, past1.shape[2]), slice(None))
    elif example.layout == "halves":
        block = np.stack((past0, past1))
        placed = {"past0": (block, (0,)), "past1": (block, (1,))}
    elif example.layout == "rows of one block":
        block = np.concatenate((past0, past1), axis=2)
        placed = {f"past{i}": (block, (..., slice(i * ROWS, (i + 1) * ROWS), slice(None))) for i in range(2)}
    elif example.layout == "inside":
        for name, past in (("past0", past0), ("past1", past1)):
            placed[name] = np.pad(past[None], ((1, 1), *((0, 0),) * 4), constant_values=77), (1,)
    else:
        placed["past0"] = past0.copy(), everything
        placed["past1"] = placed["past0"] if example.layout == "one array" else (past1.copy(), everything)
    if example.layout == "with room":
        placed = {name: (block, (..., slice(0, ROWS), slice(None))) for name, (block, _) in placed.items()}
    block, where = placed["past0"]
    feeds = {name: block[where] for name, (block, where) in placed.items()}
    masks = {id(block): (block, np.zeros(block.shape, np.bool_)) for block, _ in placed.values()}
    for name in sorted(placed, key=lambda n: n not in donate):
        block, where = placed[name]
        # A block with room is given away with its room.
        spare = "room" in example.layout or example.layout == "a part of the other"
        if name in donate and spare:
            masks[id(block)][1][...] = True
        masks[id(block)][1][where] = name in donate
    for name in ("row", "flat"):
        if name == "row" and example.row_inside:
            feeds[name] = feeds["past0"][:, :, 1:2]
            if name not in donate:
                block, where = placed["past0"]
                masks[id(block)][1][where][:, :, 1:2] = False
            continue
        feeds[name] = arrays[name].copy()
        masks[id(feeds[name])] = feeds[name], np.full(feeds[name].shape, name in donate)
    if example.backwards:
        feeds = dict(reversed(feeds.items()))
    return Given(feeds, list(masks.values()))


def _block(array: np.ndarray) -> np.ndarray:
    """All of a block that `kvviz.reserve` made, filled with a number that is in no cache."""
    block = array.base
    assert block is not None
    block[:, :, array.shape[2] :] = 77
    return block
