"""Traces that the views are tested on: real decodes, bodies of every kind, and names chosen to do harm."""

import json
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from matplotlib import pyplot as plt

import kvviz
from tests.engine.graphs import graph_of
from tests.graph.build import MODELS, model, node
from tests.test_models import graph_of as model_of
from tests.view.golden import stopped_halfway

STORYTELLER = MODELS / "storyteller"
WORDS = json.loads((STORYTELLER / "vocab.json").read_text("utf-8"))
HOSTILE = (
    '</script><script>alert("x")</script>',
    'n1"]; n0 -> n1 [label="',
    "&amp; <b>'bold'</b> \\N \\\n\t\x00",
    "x" * 10_000,
    "ναμε 层 🦉",
)


class Html(HTMLParser):
    """What a text of HTML holds; ``nested`` says whether each end tag is that of the element that is open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.nested = True
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.open: list[tuple[str, str]] = []  # tag and id
        self.texts: list[tuple[str, str, str]] = []  # tag and id of the element, and the text
        self.cells: list[str] = []  # of tables
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "img"):
            self.open.append((tag, dict(attrs).get("id") or ""))
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        self.nested &= self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.append((*self.open[-1], data))
        if self.cells:
            self.cells[-1] += data

    def of(self, name: str) -> list[str]:
        return [text for tag, _, text in self.texts if tag == name]

    def by_id(self, name: str) -> str:
        return "".join(text for _, key, text in self.texts if key == name)


def plain(i: int) -> str:
    return f"node_{i}"


def chain(name: Callable[[int], str]) -> kvviz.Trace:
    """Five ops in a row that all may run in place, with names of one's own making."""
    nodes = [node("Relu", "x", "v0"), *(node("Neg", f"v{i}", f"v{i + 1}") for i in range(4))]
    for i, made in enumerate(nodes):
        made.name = name(i)
    graph = kvviz.load(model(nodes, ["x float 4 8"], ["v4 float 4 8"]))
    trace = kvviz.run(graph, {"x": np.ones((4, 8), np.float32)})
    trace.title = name(0)
    return trace


@pytest.fixture(scope="session")
def decoded() -> kvviz.Trace:
    """Four tokens of a storyteller whose caches have room to grow."""
    graph = model_of("storyteller/attention_23")
    prompt = np.load(STORYTELLER / "attention_23" / "ref.npz")["prompt"][:6]
    return kvviz.decode(graph, prompt, max_new_tokens=4, tokenizer=WORDS, kv_capacity=16)


@pytest.fixture(scope="session")
def copying() -> kvviz.Trace:
    """Four tokens of a model from an exporter, its caches without room, so that Concat copies the past."""
    return kvviz.decode(model_of("o01_optimum_llama"), [5, 17, 33], max_new_tokens=4)


@pytest.fixture(scope="session")
def sparse() -> kvviz.Trace:
    """Thirty runs of a storyteller whose caches grow; the steps of nine were kept, and the last is not among them."""
    graph = model_of("storyteller/concat")
    return kvviz.decode(graph, [1, 5, 9], 30, tokenizer=WORDS, detail=range(3, 27, 3), progress=False)


@pytest.fixture(scope="session")
def branching() -> kvviz.Trace:
    """Two tokens of a model whose work is done in the branches of one If."""
    return kvviz.decode(model_of("storyteller/merged_if"), [1, 5, 9], max_new_tokens=2, kv_capacity=8)


@pytest.fixture(scope="session")
def looping() -> kvviz.Trace:
    """A Loop that runs three times, and one that never does."""
    body = """body (int64 i, bool go, float[4] carried) => (bool on, float[4] more, float[4] seen) {
        on = Identity(go) more = Add(carried, outer) seen = Neg(more) }"""
    loaded = graph_of(f"""g (float[4] x) => (float[4] y, float[n,4] all) <int64 trips = {{3}}, int64 none = {{0}}> {{
        outer = Relu(x) [loop] last, all = Loop <body = {body}> (trips, "", outer)
        [idle] y, rest = Loop <body = {body}> (none, "", last) }}""")
    return kvviz.run(loaded, {"x": np.ones(4, np.float32)})


@pytest.fixture(scope="session")
def hostile() -> kvviz.Trace:
    """The chain of `chain`, with names that try to break out of every format."""
    return chain(lambda i: HOSTILE[i])


@pytest.fixture(scope="session")
def halfway() -> kvviz.Trace:
    return stopped_halfway()


@pytest.fixture
def no_figures() -> Iterator[None]:
    plt.close("all")
    yield
    plt.close("all")


@pytest.fixture(params=["decoded", "copying", "sparse", "branching", "looping", "hostile", "halfway"])
def trace(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)
