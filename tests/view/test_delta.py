"""What changed from one payload to the next: little, and enough to make the one of the other."""

import gzip
import random

import numpy as np
import pytest

import kvviz
from kvviz.errors import KvvizError
from kvviz.view.page_data.packed_columns import Columns, Sent, change, sent, written
from kvviz.view.page_data.payload import decode, payload
from tests.graph.build import MODELS
from tests.test_models import graph_of


def between(old: Sent, new: Sent) -> bytes:
    made = change(old, new)
    assert made is not None
    return made


def content(dice: random.Random, old: Sent | None = None) -> Sent:
    """Lists, entries and columns at random; of an earlier one some are edited in the middle, longer or shorter."""
    header: dict = {"title": dice.choice("ab"), "words": [dice.randrange(9) for _ in range(dice.randrange(6))]}
    columns = Columns()
    for name in "abcd":
        known = [] if old is None else decode(written(old))[1].get(name, np.zeros(0)).tolist()
        at = dice.randrange(len(known) + 1)
        values = [
            *known[:at],
            *(dice.randrange(99) for _ in range(dice.randrange(9))),
            *known[at + dice.randrange(3) :],
        ]
        if dice.random() < 0.8:
            columns.ints(name, values) if name < "c" else columns.floats(name, values)
    if old is not None:
        header["words"] = [*old.header["words"][: dice.randrange(6)], *header["words"]]
        for name in old.arrays.keys() - columns.arrays.keys():
            columns.ints(name, []) if name < "c" else columns.floats(name, [])
    return sent(header, columns)


@pytest.mark.parametrize("seed", range(100))
def test_the_later_ones_are_made_of_the_earlier_one_and_what_changed(seed: int) -> None:
    dice = random.Random(seed)
    first = content(dice)
    second = content(dice, first)
    third = content(dice, second)
    (found, columns), (wanted, others) = (
        decode(written(first), between(first, second), between(second, third)),
        decode(written(third)),
    )
    assert found == wanted and columns.keys() == others.keys()
    assert all(np.array_equal(columns[name], others[name]) for name in others)


def test_what_was_overwritten_in_the_middle_of_a_column_or_appended_to_a_list_is_all_that_is_sent() -> None:
    dice = np.random.default_rng(1)
    column, texts = dice.integers(0, 1 << 30, 50_000), [str(n) for n in dice.integers(0, 1 << 30, 5_000)]
    old, new = Columns(), Columns()
    old.ints("a", column)
    new.ints("a", [*column[:400], 1234, *column[401:]])
    assert len(between(sent({"texts": texts}, old), sent({"texts": [*texts, "more"]}, new))) < 200


def test_what_changed_in_another_payload_is_refused_and_a_header_that_loses_an_entry_is_sent_whole() -> None:
    assert change(sent({"report": 1}, Columns()), sent({}, Columns())) is None
    short, long = Columns(), Columns()
    short.ints("a", [1, 2])
    long.ints("a", [1, 2, 3])
    with pytest.raises(KvvizError, match="of 3 entries, not of 2"):
        decode(written(sent({}, short)), between(sent({}, long), sent({}, short)))


def test_a_step_at_the_live_edge_sends_what_changed_and_not_all_again() -> None:
    debugger = kvviz.debug(graph_of("storyteller/concat"), prompt=[1, 5, 9, 4], max_new_tokens=6)
    debugger.cursor = len(debugger.trace.steps) - 1
    whole = len(debugger.payload)
    sent: list[int] = []
    debugger.observe(lambda change: sent.append(len(change["new"])), names=["payload", "edge", "latest"])
    for _ in range(200):
        debugger.next()
    assert max(sent) < whole / 8 and sum(sent) / 200 < whole / 25


def test_the_payload_is_told_anew_before_the_changes_become_as_large() -> None:
    debugger = kvviz.debug(graph_of("o01_optimum_llama"), prompt=[5, 17, 33], max_new_tokens=8, recorded=1)
    first = debugger.payload
    debugger.resume()
    assert debugger.payload != first and debugger.edge == debugger.latest == b""
    assert decode(debugger.payload)[0]["total"] == len(debugger.trace.steps)
    assert gzip.decompress(debugger.payload)[4:5] == b"{"


SPELLED = {f"step.{text}" for text in ("sentence", "rule", "note", "end")}
SPELLED |= {f"block.{text}" for text in ("code", "culprit", "message")}
SPELLED |= {"out.info", "bind.info", "frame.label", "storage.name"}


def spelled(told: tuple[dict, dict]) -> dict[str, list]:
    """All columns, texts for their numbers: which number a text has depends on when it came."""
    header, columns = told
    strings = header["strings"]
    left = {name: values.tolist() for name, values in columns.items() if not name.startswith(("text.", "number."))}
    return {name: [strings[i] for i in told] if name in SPELLED else told for name, told in left.items()}


@pytest.mark.parametrize(("model", "policy"), [
    ("o02_optimum1_merged_gpt2", "ideal"),
    ("o02_optimum1_merged_gpt2", "rten"),
    ("storyteller/concat", "onnxruntime"),
])  # fmt: skip
def test_what_is_told_step_by_step_is_what_is_told_at_once(model: str, policy: str) -> None:
    """Steps of a run that are not told anew at every step still read as if they had been: who is to blame may change,
    and what died with the last step."""
    graph = kvviz.load(MODELS / model / "model.onnx")
    debugger = kvviz.debug(graph, prompt=[1, 5, 9, 4], max_new_tokens=4, recorded=2, policy=policy)
    debugger.cursor = len(debugger.trace.steps) - 1
    for step in range(120):
        debugger.into() if step % 3 else debugger.next()
        if step % 40 == 39:
            debugger.next_decode_step()
        if step % 29 == 0 or step % 40 == 39:
            told = decode(debugger.payload, debugger.edge, debugger.latest)
            fresh = decode(payload(debugger.trace))
            assert spelled(told) == spelled(fresh)
            assert all(told[0][name] == fresh[0][name] for name in ("live", "runs"))
