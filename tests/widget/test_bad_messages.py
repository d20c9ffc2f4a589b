"""What the page sends is checked: the answer to nonsense is an error, and the next command works."""

from __future__ import annotations

from typing import Any

import pytest

import kvviz
from tests.decode.small import small

GRAPH = kvviz.load(small("concat").proto)
JUNK = [None, True, -7, 99, 10**30, float("nan"), "x", [], [None], {}, {"kind": "cache", "id": 99}, [{"kind": 5}]]


class Heard:
    """A debugger, and what it sends to the page."""

    def __init__(self) -> None:
        self.page: Any = kvviz.debug(GRAPH, prompt=[1, 2, 3], max_new_tokens=2)
        self.sent: list[dict[str, Any]] = []
        self.page.send = lambda content, buffers=None: self.sent.append(content)

    def hear(self, method: str, **data: Any) -> list[dict[str, Any]]:
        self.sent.clear()
        self.page._handle_msg({"content": {"data": {"method": method, "buffer_paths": [], **data}}, "buffers": []})
        return list(self.sent)

    def works(self) -> bool:
        answers = self.hear("custom", content={"do": "report", "from": 10**6, "cures": False, "id": 8})
        return len(answers) == 1 and "report" in answers[0]


@pytest.fixture(scope="module")
def heard() -> Heard:
    return Heard()


@pytest.mark.parametrize("trait", ["lane", "cursor", "decode_step", "selection", "breakpoints", "height", "theme"])
def test_a_trait_that_the_page_sets_to_nonsense_does_not_disable_the_widget(heard: Heard, trait: str) -> None:
    drawn = None
    for value in JUNK:
        heard.hear("update", state={trait: value})
        assert heard.works(), (trait, value)
        if (kept := repr(getattr(heard.page, trait))) != drawn:  # the picture takes most of the time
            heard.page._still()
            drawn = kept
    assert heard.page.lane == 0 and heard.page.cursor >= -1


def test_a_lane_that_there_is_not_is_answered_and_the_page_gets_the_present_one(heard: Heard) -> None:
    answers = heard.hear("update", state={"lane": 5, "cursor": 2})
    assert [answer["error"] for answer in answers] == [
        "the page sent what cannot be shown: there is no lane 5; there are 0"
    ]
    assert heard.page.lane == 0 and heard.works()


@pytest.mark.parametrize(
    "content",
    [
        None,
        5,
        [],
        {},
        {"do": "value", "value": "x", "step": None},
        {"do": "value", "value": None, "step": 0},
        {"do": "fix", "finding": float("nan")},
        {"do": "fix", "finding": -1},
        {"do": "attention", "cache": "x", "run": 0, "query": 0},
        {"do": "detail"},
        {"do": "detail", "run": 10**30},
        {"do": "choose", "frame": 10**9, "node": 0},
        {"do": "choose", "frame": 0, "node": -(10**9)},
        {"do": "fix", "step": None, "blocker": 0},
        {"do": "fork", "change": 5},
        {"do": "fork", "change": {"run": {"node": None}}, "step": 0},
        {"do": "fork", "change": {"kv_capacity": "x"}, "step": 0},
        {"do": "fork", "change": {"fix": 5}},
        {"do": "close_lane", "lane": None},
        {"do": "report", "shown": [], "at": None},
        {"do": "report", "shown": 0, "at": "x"},
    ],
    ids=repr,
)
def test_a_message_that_makes_no_sense_is_answered_with_an_error(heard: Heard, content: Any) -> None:
    answers = heard.hear("custom", content={**content, "id": 7} if isinstance(content, dict) else content)
    assert len(answers) == 1 and answers[0]["error"] and heard.works()
