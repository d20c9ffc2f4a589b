"""Rows deleted by a click: what is shown is what the function says of the rows that are left."""

from collections.abc import Sequence

import numpy as np
import pytest

import kvviz
from kvviz.lessons import RowDeletion


def without(rows: Sequence[int]) -> np.ndarray:
    """Probabilities that fall with each row: token 2 leads until row 0 is gone."""
    found = np.array([0.1, 0.2, 0.4, 0.05, 0.15, 0.1])
    if 0 in rows:
        found[[1, 2]] = found[[2, 1]]
    return found


@pytest.fixture
def clicks() -> RowDeletion:
    return RowDeletion(["<s>", " the", "\n", " owl"], without, lambda token: f"t{token}")


def test_a_pressed_button_deletes_its_row(clicks: RowDeletion) -> None:
    assert clicks.likeliest[0] == ("t2", 0.4)
    clicks.rows[0].value = True
    assert clicks.deleted == (0,) and clicks.likeliest[0] == ("t1", 0.4)
    clicks.rows[0].value = False
    assert clicks.deleted == () and clicks.likeliest[0] == ("t2", 0.4)


def test_the_five_likeliest_are_told_from_the_likeliest_down(clicks: RowDeletion) -> None:
    assert [text for text, _ in clicks.likeliest] == ["t2", "t1", "t4", "t5", "t0"]
    shares = [share for _, share in clicks.likeliest]
    assert shares == sorted(shares, reverse=True)


def test_rows_that_are_set_at_once_ask_once() -> None:
    asked: list[tuple[int, ...]] = []

    def note(rows: Sequence[int]) -> np.ndarray:
        asked.append(tuple(rows))
        return without(rows)

    clicks = RowDeletion(["a", "b", "c"], note, str)
    clicks.deleted = (0, 2)
    assert asked == [(), (0, 2)]


def test_a_row_that_is_not_there_is_refused(clicks: RowDeletion) -> None:
    with pytest.raises(kvviz.KvvizError, match="there is no row 4; the rows are 0 to 3"):
        clicks.deleted = (4,)
    assert clicks.deleted == ()


def test_spaces_and_line_breaks_can_be_seen(clicks: RowDeletion) -> None:
    assert [row.description for row in clicks.rows] == ["<s>", "the", "⏎", "owl"]
