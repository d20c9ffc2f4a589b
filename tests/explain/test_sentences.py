"""Sentences about steps: each kind has its own, and what they claim of real ones can be looked up in the trace."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz.explain.sentences import Facts, Grown, rule, rule_of, sentence, sentence_of
from kvviz.trace.blockers import Blocker, BlockerCode
from kvviz.trace.records import Placed
from kvviz.trace.units import buffer, count, dims, short, size, size_of
from tests.engine.graphs import graph_of
from tests.graph.build import MODELS


@pytest.fixture(scope="module")
def roomy() -> kvviz.Trace:
    return kvviz.decode(kvviz.load(MODELS / "o05_dynamo_llama_op23" / "model.onnx"), [5, 17, 33], 3, kv_capacity=16)


@pytest.fixture(scope="module")
def tight() -> kvviz.Trace:
    return kvviz.decode(kvviz.load(MODELS / "o05_dynamo_llama_op23" / "model.onnx"), [5, 17, 33], 3)


@pytest.fixture(scope="module")
def branches() -> kvviz.Trace:
    path: Path = MODELS / "storyteller" / "merged_if" / "model.onnx"
    return kvviz.decode(kvviz.load(path), [1, 5, 9], 2)


def test_every_step_has_one_sentence_that_begins_with_its_op(roomy: kvviz.Trace, branches: kvviz.Trace) -> None:
    for trace in (roomy, branches):
        for step in trace.steps:
            text = sentence(step, trace)
            assert text.startswith(f"{step.op_type} ") and text.endswith(".")
            assert "\n" not in text and len(text) < 400
            assert rule(step)
            # every buffer that it names is one of the step
            assert set(re.findall(r"\b(B\d+)(?:\.\d+)?\b", text)) <= {f"B{o.storage}" for o in step.outs}


def test_a_cache_with_room_grows_by_one_row_a_token_and_copies_nothing(roomy: kvviz.Trace) -> None:
    last = roomy.runs[-1]
    grown = [s for s in roomy.steps[last.first : last.last] if any(o.how == "append" for o in s.outs)]
    assert len(grown) == len(roomy.caches)
    for step in grown:
        assert re.fullmatch(
            r"Concat appended 1 row to B\d+ in place; 0 of [\d,]+ B of past copied\.", sentence(step, roomy)
        )


def test_a_cache_without_room_is_copied_and_the_sentence_says_why(tight: kvviz.Trace) -> None:
    last = tight.runs[-1]
    presents = {cache.output for cache in tight.caches}
    steps = [s for s in tight.steps[last.first : last.last] if presents & set(s.outputs)]
    assert len(steps) == len(tight.caches)
    for step in steps:
        text = sentence(step, tight)
        past = next(name for name in step.inputs if "past" in name)
        assert f"to a new buffer B{step.outs[0].storage}" in text and f"cannot append to {past}" in text


def test_the_op_that_is_blamed_for_a_missed_chance_really_reads_the_input_later(roomy: kvviz.Trace) -> None:
    blamed = 0
    for step in roomy.steps:
        found = re.search(r"cannot overwrite (\S+): (\S+) \(step ([\d,]+)\) still reads it", sentence(step, roomy))
        if found:
            later = roomy.steps[int(found[3].replace(",", ""))]
            assert later.index > step.index and later.run == step.run
            assert later.node == found[2] and found[1] in later.inputs
            blamed += 1
    assert blamed > 5


def test_an_if_names_its_branch_and_how_values_came_in_and_alone_what_it_handed_out(
    roomy: kvviz.Trace, branches: kvviz.Trace
) -> None:
    told = [sentence(s, branches) for s in branches.steps if s.op_type == "If"]
    assert [text.split(";")[0] for text in told] == ["If took its else_branch", "If took its then_branch"]
    for text, frame in zip(told, [f for f in branches.frames if f.parent is not None]):
        hows = [b.how for b in frame.bindings]
        assert f"{hows.count('captured by reference')} values by reference" in text
    # a step alone is described with less but in the same words
    same = [sentence(s) == sentence(s, roomy) for s in roomy.steps]
    assert sum(same) > 0.8 * len(same)
    control = next(s for s in branches.steps if s.op_type == "If")
    assert sentence(control).startswith("If handed out B")


def test_a_loop_counts_its_turns() -> None:
    loaded = graph_of("""g (float[2] x, int64 trips) => (float[2] y) { y = Loop (trips, "", x) <body = b
        (int64 i, bool go, float[2] v) => (bool on, float[2] w) { on = Identity(go) w = Add(v, v) }> }""")
    for trips, words in ((3, "ran its body 3 times"), (1, "ran its body 1 time"), (0, "ran no body")):
        trace = kvviz.run(loaded, {"x": np.ones(2, np.float32), "trips": np.array(trips)})
        assert sentence(trace.steps[-1], trace).startswith(f"Loop {words}")


def test_a_borrowed_input_is_named_as_the_callers_and_donating_it_changes_the_sentence() -> None:
    loaded = graph_of("g (float[4] x) => (float[4] y) { y = Relu(x) }")
    kept, given = (kvviz.run(loaded, {"x": np.ones(4, np.float32)}, donate=donate) for donate in ([], ["x"]))
    assert "belongs to the caller" in sentence(kept.steps[0], kept)
    assert rule(kept.steps[0]) == "refused: borrowed from the caller"
    assert sentence(given.steps[0], given).startswith("Relu overwrote x in place")


def tell(op: str, outs: list[Placed], **facts: Any) -> str:
    return sentence_of(Facts(op, outs, **facts))


def out(how: str, storage: int = 12, generation: int = 0, nbytes: int = 256) -> Placed:
    return Placed("y", storage, generation, how, (8, 8), "float32", nbytes=nbytes)


READ = "Slice (step 298) still reads it"


def blocker(code: BlockerCode, position: int = 0, input: str = "mask", why: str = READ) -> Blocker:
    return Blocker(code, input, position, "Slice", f"Add cannot overwrite {input}: {why}")


CANNOT = Blocker(BlockerCode.OP_CANNOT, "", -1, "MatMul", "MatMul never runs in place")
LATER, BORROWED = blocker(BlockerCode.NOT_LAST_USE), blocker(BlockerCode.BORROWED_INPUT, why="the caller's")
OTHER_SHAPE = blocker(BlockerCode.SHAPE_DIFFERS, 0, "small", "its shape differs")
# Operator, outputs, what else is known of the step, and the sentence.
SAID: list[tuple[str, list[Placed], dict[str, Any], str]] = [
    ("MatMul", [out("new", 31)], {"written": 256}, "MatMul wrote 256 B to a new buffer B31."),
    ("Split", [out("new", 3), out("new", 4), out("new", 5)], {"written": 768},
     "Split wrote 768 B to new buffers B3 and 2 more."),
    ("Concat", [out("append", 5, 6, 2304)], {"source": "past", "written": 128, "grown": Grown(1, 128)},
     "Concat appended 1 row to B5 in place; 0 of 2,176 B of past copied."),
    # Where the past is not known, bytes are counted.
    ("Concat", [out("append", 5, 1, 2304)], {"source": "past", "written": 128}, "Concat appended 128 B…"),
    ("Concat", [out("append", 5, 1, 640)], {"source": "past", "written": 640, "grown": Grown(5, 640)},
     "Concat appended 5 rows to B5 in place; the past was empty."),
    ("Add", [out("in place", 12, 3)], {"source": "x", "written": 256},
     "Add overwrote x in place: B12.2 is now B12.3; nothing was allocated."),
    ("TensorScatter", [out("in place", 51, 7, 20_480)], {"source": "key_cache", "written": 128},
     "TensorScatter wrote 128 B of 20.5 kB of key_cache in place: B51 is now B51.7."),
    ("Concat", [out("in place", 12, 1)], {"source": "x", "written": 0},
     "Concat handed x on as it is: B12 is now B12.1; nothing was written."),
    ("Reshape", [out("view")], {}, "Reshape is a view of B12; nothing was written."),
    ("Transpose", [out("view")], {"weights": {12}.__contains__},
     "Transpose is a view of a weight; nothing was written."),
    ("Split", [out("view")] * 3, {}, "Split made 3 views of B12; nothing was written."),
    ("Add", [out("new", 22)], {"blockers": [LATER], "written": 1152, "allocated": 1152},
     "Add wrote 1,152 B to a new buffer B22; it cannot overwrite mask: Slice (step 298) still reads it."),
    ("Add", [out("new", 22)], {"blockers": [LATER, BORROWED], "written": 8, "allocated": 8},
     "…it cannot overwrite mask: the caller's, and Slice (step 298) still reads it."),
    # The input that came nearest is named: no schedule could save one of another shape.
    ("Add", [out("new")], {"blockers": [OTHER_SHAPE, blocker(BlockerCode.NOT_LAST_USE, 1, "large")], "written": 8,
                           "allocated": 8}, "…it cannot overwrite large: Slice (step 298) still reads it."),
    # What an op can never do is no reason.
    ("MatMul", [out("new", 31)], {"blockers": [CANNOT], "written": 256, "allocated": 256},
     "MatMul wrote 256 B to a new buffer B31."),
    ("Gather", [out("new")], {"written": 8, "copied": 8}, "Gather copied 8 B to a new buffer B12."),
    ("Concat", [out("new")], {"written": 2176, "copied": 2048}, "…2,176 B (2,048 B of it copied)…"),
    ("Add", [out("pool", 7, 2)], {"written": 8}, "Add wrote 8 B to B7.2, which came from the pool."),
    ("Add", [out("new")], {"source": "x", "written": 8},
     "Add was called in place with x, and wrote 8 B to a new buffer B12."),
    # Of several outputs the one in place comes first.
    ("GroupQueryAttention", [out("new", 9), out("append", 5, 6, 2304), out("append", 6, 6, 2304)],
     {"source": "past", "written": 900, "grown": Grown(1, 128)},
     "GroupQueryAttention appended 1 row to B5 in place; 0 of 2,176 B of past copied (and new B9, append B6.6)."),
    ("Odd", [out("new")], {"written": 8, "foreign": True}, "…; it ran on the reference kernel."),
]  # fmt: skip


@pytest.mark.parametrize(("op", "outs", "facts", "said"), SAID)
def test_each_kind_of_step_has_its_sentence(op: str, outs: list[Placed], facts: dict[str, Any], said: str) -> None:
    assert re.fullmatch(re.escape(said).replace("…", ".*"), tell(op, outs, **facts))


@pytest.mark.parametrize(("hows", "taken", "blockers", "words"), [
    (["in place"], "x", [], "last use, owned by the run, same shape and type"),
    (["new", "append"], "x", [], "owned by the run, with room to grow"),
    (["view"], "", [], "the op only looks at its input in another way"),
    (["new"], "", [CANNOT], "no input of this op may be overwritten"),
    (["new"], "", [LATER, OTHER_SHAPE], "refused: another shape, still read later"),
    (["pool"], "", [], "a freed buffer of the run was large enough"),
])  # fmt: skip
def test_the_rule_is_given_in_a_few_words(hows: list[str], taken: str, blockers: list[Blocker], words: str) -> None:
    assert rule_of(Facts("Add", [out(how) for how in hows], blockers, taken)) == words


def test_every_code_of_a_blocker_has_words_of_its_own() -> None:
    words = [rule_of(Facts("Add", [out("new")], [blocker(code)])) for code in BlockerCode]
    assert len(set(words)) == len(words)


def test_a_name_of_any_length_leaves_a_sentence_readable() -> None:
    long = "x" * 10_000
    later = "y" * 10_000
    why = Blocker(BlockerCode.NOT_LAST_USE, long, 0, later, f"Add cannot overwrite {long}: {later} still reads it")
    assert len(tell("Add", [out("new")], blockers=[why], written=8, allocated=8)) < 240
    assert len(tell("Add", [out("in place", 1, 1)], source=long, written=256)) < 160


def test_sizes_and_small_words() -> None:
    found = [size(nbytes) for nbytes in (0, 9_999, 1e4, 999_499, 999_500, 5e12)]
    assert found == ["0 B", "9,999 B", "10.0 kB", "999 kB", "1.00 MB", "5,000 GB"]
    assert [buffer(12), buffer(12, 3)] == ["B12", "B12.3"]
    assert [count(1, "row"), count(1024, "row"), count(2, "entry", "entries")] == ["1 row", "1,024 rows", "2 entries"]
    assert [dims((1, None, "n")), dims(()), dims(None)] == ["[1,?,n]", "[]", ""]
    assert [size_of(0, 2176), size_of(128, 20_480)] == ["0 of 2,176 B", "128 B of 20.5 kB"]
    assert short("a\nb\x00") == "a·b·"
    assert len(short("abc" * 100, 20)) == 20
