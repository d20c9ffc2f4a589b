"""The benchmark says where a figure is worse than the one that was committed, and what is not reached."""

from pathlib import Path

import pytest

from tests.bench import tell


def test_a_loss_and_a_goal_that_is_not_reached_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tell, "COMMITTED", tmp_path / "figures.json")
    monkeypatch.setattr(tell, "GOALS", {"wanted": 1.0, "not measured": 1.0})
    monkeypatch.setattr(tell, "_figures", {})
    for name in ("wanted", "worse", "same"):
        tell.hold(name, 1.0)
    tell.summary(write=True)
    for name, figure in (("wanted", 1.05), ("worse", 1.5), ("same", 1.05)):
        tell.hold(name, figure)
    capsys.readouterr()
    tell.summary(write=False)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[3:]]
    assert rows == [
        ["wanted", "1.05", "1.00", "1.00", "not", "reached"],
        ["not", "measured", "–", "–", "1.00"],
        ["worse", "1.50", "1.00", "–", "LOSS"],
    ]
