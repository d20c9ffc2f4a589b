"""What the payload says of lanes, times and refused frees."""

from __future__ import annotations

from kvviz.trace.writer import Writer
from kvviz.view.payload import decode, payload
from tests.trace.recordings import two_lanes


def test_times_travel_with_their_lanes() -> None:
    header, columns = decode(payload(two_lanes()))
    lanes = [header["strings"][lane] for lane in columns["time.lane"]]
    assert lanes == ["transfer", "queue 0", "transfer", "queue 0", "queue 0"]
    assert columns["time.step"].tolist() == [0, 1, 2, 3, 4]
    assert columns["time.start"].tolist() == [0, 4, 5, 9, 11]
    assert columns["time.end"].tolist() == [4, 9, 8, 11, 15]


def test_a_free_that_was_refused_is_told_and_one_that_was_done_is_not() -> None:
    header, columns = decode(payload(two_lanes()))
    assert columns["refused.step"].tolist() == [3] and columns["refused.storage"].tolist() == [0]
    assert header["strings"][columns["refused.why"][0]] == "a program that was submitted reads it"


def test_a_recording_whose_time_is_the_step_number_has_neither() -> None:
    w = Writer("one op")
    w.op("NEW", outputs=[w.value("x", (2,), "float32")])
    assert not [name for name in decode(payload(w.finish()))[1] if name.startswith(("time.", "refused."))]
