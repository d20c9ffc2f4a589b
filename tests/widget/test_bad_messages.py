"""What the page sends is checked: the answer to nonsense is an error, and the next command works."""

from typing import Any

import pytest

import kvviz
from tests.decode.small import small

GRAPH = kvviz.load(small("concat").proto)
JUNK = [None, True, -7, 99, 10**30, float("nan"), "x", [], [None], {}, {"kind": "cache", "id": 99}, [{"kind": 5}]]


class Heard:
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
    ("content", "told"),
    [
        (None, ""),
        (5, ""),
        ([], ""),
        ({}, ""),
        ({"do": "value", "value": "x", "step": None}, ""),
        ({"do": "value", "value": None, "step": 0}, ""),
        ({"do": "fix", "finding": float("nan")}, ""),
        ({"do": "fix", "finding": -1}, ""),
        ({"do": "fix", "step": None, "blocker": 0}, ""),
        ({"do": "fix", "step": 0, "blocker": 0}, "there is no fix"),
        ({"do": "fix", "step": 10**6, "blocker": 0}, "there is no fix"),
        ({"do": "attention", "cache": "x", "run": 0, "query": 0}, ""),
        ({"do": "attention", "cache": 9, "run": 0, "query": -1}, "cache 9 has no run 0"),
        ({"do": "attention", "cache": 0, "run": 99, "query": -1}, "cache 0 has no run 99"),
        ({"do": "attention", "cache": 0, "run": 0, "query": 7}, "no such query"),
        ({"do": "detail"}, ""),
        ({"do": "detail", "run": 10**30}, "does not exist; there are 2"),
        ({"do": "choose", "frame": 10**9, "node": 0}, ""),
        ({"do": "choose", "frame": 0, "node": -(10**9)}, ""),
        ({"do": "fork", "change": 5}, ""),
        ({"do": "fork", "change": {"run": {"node": None}}, "step": 0}, ""),
        ({"do": "fork", "change": {"run": {"node": 0}}, "step": 20}, "cannot run at step 20: it ran as step"),
        ({"do": "fork", "change": {"run": {"node": 99999}}, "step": 5}, "there is no node 99999"),
        ({"do": "fork", "change": {"run": {"node": 0}}, "step": 10**6}, "nothing is left to run at step"),
        ({"do": "fork", "change": {"kv_capacity": "x"}, "step": 0}, ""),
        ({"do": "fork", "change": {"policy": "fast"}, "step": 0}, "there is no policy 'fast'"),
        ({"do": "fork", "change": {"graph": 3}, "step": 0}, "a fork with graph, which is not known here"),
        ({"do": "fork", "change": {}, "step": 0}, "a fork with nothing"),
        ({"do": "fork", "change": {"fix": 5}}, ""),
        ({"do": "close_lane", "lane": None}, ""),
        ({"do": "report", "shown": [], "at": None}, ""),
        ({"do": "report", "shown": 0, "at": "x"}, ""),
    ],
    ids=repr,
)
def test_a_message_that_makes_no_sense_is_answered_with_an_error_in_one_line(
    heard: Heard, content: Any, told: str
) -> None:
    (answer,) = heard.hear("custom", content={**content, "id": 7} if isinstance(content, dict) else content)
    assert answer["error"] and told in answer["error"] and "\n" not in answer["error"]
    assert heard.works() and len(heard.page.lanes) == 1
