"""What changed from one payload to the next: little, and enough to make the one of the other."""

from __future__ import annotations

import gzip
import random

import pytest

import kvviz
from kvviz.errors import KvvizError
from kvviz.view.payload import decode, payload
from kvviz.view.payload_delta import delta, patched
from tests.graph.build import MODELS

TEXT = "text."


def raw(parts: dict[str, bytes]) -> bytes:
    return b"".join(parts.values())


def changed(parts: dict[str, bytes], dice: random.Random) -> dict[str, bytes]:
    """The same parts after random edits: overwritten, put in, taken out, appended; some parts come and go."""
    made = {}
    for name, part in parts.items():
        text = bytearray(part)
        for _ in range(dice.randrange(3)):
            at, some = dice.randrange(len(text) + 1), dice.randbytes(dice.randrange(40))
            text[at : at + dice.choice([0, len(some), 5])] = some
        if dice.random() < 0.9:
            made[name] = bytes(text)
    made[f"{dice.choice(['', TEXT])}new{dice.randrange(99)}"] = dice.randbytes(dice.randrange(60))
    return made


@pytest.mark.parametrize("seed", range(200))
def test_the_later_one_is_made_of_the_earlier_one_and_what_changed(seed: int) -> None:
    dice = random.Random(seed)
    old = {f"{TEXT if i % 2 else ''}{i}": dice.randbytes(dice.randrange(300)) for i in range(6)}
    new = changed(old, dice)
    assert patched(raw(old), delta(old, new, TEXT)) == raw(new)


def test_what_moved_in_a_text_and_what_was_overwritten_in_a_column_is_not_told_again() -> None:
    dice = random.Random(1)
    text, column = dice.randbytes(100_000), dice.randbytes(100_000)
    old = {"text.a": text, "column": column}
    new = {"text.a": text[:500] + b"some more" + text[500:], "column": column[:400] + b"1234" + column[404:] + b"56"}
    assert len(delta(old, new, TEXT)) < 200


def test_what_changed_in_another_payload_is_refused() -> None:
    with pytest.raises(KvvizError, match="not of 3"):
        patched(b"abc", delta({"a": b"abcd"}, {"a": b"abce"}, TEXT))


def test_a_step_at_the_live_edge_sends_what_changed_and_not_all_again() -> None:
    # given a decode that is recorded but for its last token
    graph = kvviz.load(MODELS / "storyteller" / "concat" / "model.onnx")
    debugger = kvviz.debug(graph, prompt=[1, 5, 9, 4], max_new_tokens=6)
    debugger.cursor = len(debugger.trace.steps) - 1
    whole = len(debugger.payload)
    sent: list[int] = []
    debugger.observe(lambda change: sent.append(len(change["new"])), names=["payload", "edge", "latest"])
    # when
    for _ in range(200):
        debugger.next()
    # then
    assert max(sent) < whole / 8 and sum(sent) / 200 < whole / 25
    # and the page has the same as if all had been sent
    told, fresh = decode(debugger.payload, debugger.edge, debugger.latest), decode(payload(debugger.trace))
    assert told[1]["step.live"].tolist() == fresh[1]["step.live"].tolist()
    assert told[0]["live"] == fresh[0]["live"] and told[0]["runs"] == fresh[0]["runs"]


def test_the_payload_is_told_anew_before_the_changes_become_as_large() -> None:
    graph = kvviz.load(MODELS / "o01_optimum_llama" / "model.onnx")
    debugger = kvviz.debug(graph, prompt=[5, 17, 33], max_new_tokens=8, recorded=1)
    first = debugger.payload
    debugger.resume()
    assert debugger.payload != first and debugger.edge == debugger.latest == b""
    assert decode(debugger.payload)[0]["total"] == len(debugger.trace.steps)
    assert gzip.decompress(debugger.payload)[4:5] == b"{"


SPELLED = {
    "step.sentence",
    "step.rule",
    "step.note",
    "step.end",
    "out.info",
    "bind.info",
    "frame.label",
    "storage.name",
} | {f"block.{text}" for text in ("code", "culprit", "message")}


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
            assert spelled(told) == spelled(decode(payload(debugger.trace)))
