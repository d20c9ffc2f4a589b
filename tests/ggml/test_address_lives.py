"""The compute buffer of a recorded graph: who lies where and how long, and what is overwritten in place."""

import pytest

from tests.ggml.real_recordings import recording

NAMES = ["tiny_mamba.jsonl.gz", "tiny_gemma3_fa_off.jsonl.gz"]


@pytest.mark.parametrize("name", NAMES)
def test_no_two_storages_of_the_compute_buffer_share_an_address_at_once(name: str) -> None:
    trace = recording(name).trace
    end = len(trace.steps)
    placed = [
        (one.address, one.address + one.capacity, one.born, end if one.freed is None else one.freed)
        for one in trace.storages
        if one.arena == "CPU compute" and one.capacity and one.address is not None
    ]
    assert len(placed) > 40
    for number, (low, high, born, freed) in enumerate(placed):
        for first, last, began, ended in placed[:number]:
            # What is freed with an op and what that op makes are both there for a moment.
            assert high <= first or last <= low or ended <= born or freed <= began
