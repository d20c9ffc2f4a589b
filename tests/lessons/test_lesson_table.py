"""Tables of lessons: the same cells as text and as HTML, with numbers to the right."""

import re

from kvviz.lessons import table

ROWS = [
    {"way": "no room", "copied": 1165824, "peak": "674,377 B", "same": True},
    {"way": "room", "copied": 0, "peak": "679,881 B", "same": False},
]


def test_numbers_get_separators_and_stand_to_the_right() -> None:
    lines = str(table(ROWS)).splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["no", "room", "1,165,824", "674,377", "B", "yes"],
        ["room", "0", "679,881", "B", "no"],
    ]
    assert lines[1].index("674,377") == lines[2].index("679,881")
    assert lines[1].index("1,165,824") + len("1,165,824") == lines[2].index("0 ") + 1


def test_html_has_the_title_and_keeps_a_number_with_its_unit() -> None:
    html = table(ROWS, "two <ways>")._repr_html_()
    assert "<caption>two &lt;ways&gt;</caption>" in html and "674,377\u00a0B" in html
    assert re.findall(r"<th [^>]*>(\w+)</th>", html) == ["way", "copied", "peak", "same"]


def test_a_table_may_be_empty_and_takes_any_iterable() -> None:
    assert len(table(())) == 0
    assert [row["n"] for row in table({"n": n} for n in (1, 2000))] == ["1", "2,000"]
