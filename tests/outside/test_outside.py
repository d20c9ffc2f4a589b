"""Some models of the tester from outside; ``python -m tests.outside`` runs as many as are wanted."""

from collections import Counter

import pytest

from tests.outside.checks import check

EACH = 6


@pytest.mark.parametrize("first", range(9_000_000, 9_000_000 + 10 * EACH, EACH))
def test_a_model_at_random_keeps_every_promise(first: int) -> None:
    count: Counter[str] = Counter()
    wrong = [line for number in range(first, first + EACH) for line in check(number, count)]
    assert wrong == []
    assert count["graphs"] >= EACH / 2


def test_a_page_is_written_of_a_model_at_random() -> None:
    assert check(9_000_100, Counter(), html=True) == []
