"""What serving systems do, on the storyteller: each tells the words that it should, and costs what it should."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvviz
from kvviz.lessons import serving
from tests.lessons.story import PROMPT, ROW, STORYTELLER, WORDS


def ids(text: str) -> list[int]:
    return [WORDS.index(word) for word in f"<s> {text}".split()]


OWL = ids(PROMPT)
CAT = ids("once upon a time there was a happy cat named mia .")
BEAR = ids("there was a big bear named ben .")


@pytest.fixture(scope="module")
def graph() -> Any:
    return kvviz.load(STORYTELLER / "concat" / "model.onnx")


@pytest.fixture(scope="module")
def told(graph: Any) -> list[int]:
    return words(graph, OWL, 73)


def words(graph: Any, prompt: list[int], most: int) -> list[int]:
    tokens: list[int] = kvviz.decode(graph, prompt, most, progress=False, record=False).tokens
    return tokens


def alike(tokens: list[int], told: list[int]) -> int:
    """Words up to the first that is another."""
    return next((i for i, (one, other) in enumerate(zip(tokens, told)) if one != other), len(tokens))


def test_passes_by_hand_tell_what_a_decode_tells(graph: Any, told: list[int]) -> None:
    by_hand = serving.tell(graph, OWL, 20)
    assert by_hand.tokens == told[:20]
    assert by_hand.kept[-1] == list(range(len(OWL) + 18))


def test_rolling_back_copies_nothing_and_forgets_what_was_guessed(graph: Any) -> None:
    # given rows of a prompt and of three wrong words, in reserved room
    first = serving.forward(graph, [OWL], serving.empty_rows(graph, room=20), donate=True)
    wrong = serving.forward(graph, [ids("cat cat")], first.rows, donate=True)
    back = serving.roll_back(wrong.rows, len(OWL))
    assert all(np.shares_memory(back[name], wrong.rows[name]) for name in back)
    again = serving.forward(graph, [[WORDS.index("rosa")]], back, donate=True, record=True)
    fresh = serving.forward(graph, [[*OWL, WORDS.index("rosa")]])
    np.testing.assert_allclose(again.logits[0, -1], fresh.logits[0, -1], atol=1e-4)
    assert again.trace is not None
    writes = [s for s in again.trace.steps if s.outputs[0].startswith("present")]
    assert len(writes) == 6 and sum(s.copied for s in writes) == 0
    assert sum(s.written for s in writes) == ROW


def test_guesses_change_the_number_of_passes_and_not_a_word(graph: Any, told: list[int]) -> None:
    # given one who guesses right, one who never does, and one who does not guess
    def oracle(tokens: list[int], most: int) -> list[int]:
        return told[len(tokens) - len(OWL) :][:most]

    perfect = serving.speculate(graph, OWL, 21, oracle, width=4)
    hopeless = serving.speculate(graph, OWL, 10, lambda tokens, most: [0] * most, width=3)
    silent = serving.speculate(graph, OWL, 10, lambda tokens, most: [])
    # then: after the prefill, which gives one, every pass gives five
    assert perfect.tokens == told[:21] and perfect.passes == 1 + 20 // 5
    assert perfect.accepted == perfect.guessed == 16 and perfect.rolled_back == 0
    assert hopeless.tokens == told[:10] and hopeless.passes == silent.passes == 10
    assert hopeless.rolled_back == hopeless.guessed > 0 and hopeless.accepted == 0
    assert perfect.bytes_copied == hopeless.bytes_copied == 0
    # no more guesses are checked than were asked for
    long = serving.speculate(graph, OWL, 6, lambda tokens, most: [0] * 50, width=4)
    assert long.guessed <= 4 * long.passes and long.bytes_copied == 0
    assert serving.speculate(graph, OWL, 6, lambda tokens, most: [0] * 50, width=0).guessed == 0
    # a repeated word is guessed to go on as before
    assert serving.repeat_draft([1, 2, 3, 1], 2) == [2, 3]
    assert serving.repeat_draft([1, 2, 3], 2) == []


@pytest.mark.parametrize(("bits", "right"), [(8, 73), (4, 73), (3, 60), (2, 11)])
def test_rows_of_few_bits_tell_the_story_up_to_some_word(graph: Any, told: list[int], bits: int, right: int) -> None:
    assert alike(serving.tell(graph, OWL, right + (right < 73), serving.in_bits(bits)).tokens, told) == right


@given(st.integers(2, 8), st.lists(st.floats(-100, 100, width=32), min_size=4, max_size=4))
def test_a_number_of_few_bits_is_off_by_half_a_step_at_most(bits: int, numbers: list[float]) -> None:
    row = np.array(numbers, np.float32).reshape(1, 1, 1, 4)
    change = serving.in_bits(bits)
    made = change({"k": row}, [0])[0]["k"]
    step = np.abs(row).max() / (2 ** (bits - 1) - 1)
    assert np.abs(made - row).max() <= step / 2 * (1 + 1e-5) + 1e-30
    assert len(np.unique(np.round(made / (step or 1)))) <= 2**bits
    np.testing.assert_allclose(change({"k": made}, [0])[0]["k"], made, rtol=1e-5)


@given(st.integers(1, 12), st.integers(0, 11), st.integers(1, 60))
@settings(max_examples=60)
def test_a_buffer_written_by_the_formula_holds_what_sinks_keep(size: int, first: int, length: int) -> None:
    if first >= size:
        with pytest.raises(kvviz.KvvizError, match="at least one"):
            serving.sinks(size, first)
        return
    # given a buffer into which positions are written, and the list that is cut
    buffer: dict[int, int] = {}
    rows, positions = {"k": np.zeros((1, 1, 0, 1), np.float32)}, list[int]()
    cut = serving.sinks(size, first)
    for at in range(length):
        buffer[at if at < first else first + (at - first) % (size - first)] = at
        rows, positions = cut(rows, positions)
        rows = {"k": np.concatenate([rows["k"], np.full((1, 1, 1, 1), at, np.float32)], 2)}
        positions = [*positions, at]
    # then: these are attended to, that of the newest token among them
    assert sorted(buffer.values()) == positions == rows["k"].ravel().astype(int).tolist()
    assert len(positions) == min(size, length)


def test_what_is_stored_is_what_the_next_pass_can_attend_to(graph: Any, told: list[int]) -> None:
    # given room for 16 rows
    window = serving.tell(graph, OWL, 12, serving.sinks(16, 0))
    # then: the first words are the same, before the window is full and a while after that
    assert window.kept[5] == list(range(3, 18)) and window.tokens[:11] == told[:11]
    pinned = serving.tell(graph, OWL, 12, serving.sinks(16, 13))
    assert pinned.kept[5] == [*range(13), 16, 17]


@pytest.fixture(scope="module")
def served(graph: Any) -> serving.PagedServer:
    server = serving.PagedServer(graph, blocks=6, block_size=8)
    for prompt, most in ((OWL, 12), (CAT, 4), (BEAR, 8)):
        server.submit(prompt, most)
    while server.step():
        pass
    return server


def test_prompts_that_come_and_go_tell_what_each_tells_alone_and_give_their_blocks_back(
    graph: Any, served: serving.PagedServer
) -> None:
    for request in served.requests:
        assert request.tokens == words(graph, request.prompt, request.most)
    # given: 24, 16 and 16 rows are needed, in blocks of 8: 3 + 2 + 2 of 6
    first, second, third = served.requests
    assert (first.longest, second.longest, third.longest) == (24, 16, 16)
    running = [moment.running for moment in served.history]
    assert running[:5] == [(0, 1)] * 4 + [(0, 2)] and len(second.tokens) == 4
    assert len(served.table.free) == 6


def test_slack_is_what_is_left_of_the_last_blocks_and_less_than_with_one_block_each(
    served: serving.PagedServer,
) -> None:
    for at, moment in enumerate(served.history):
        running = [served.requests[number] for number in moment.running]
        steps = [sum(r.number in before.running for before in served.history[:at]) for r in running]
        rows = [len(r.prompt) + count for r, count in zip(running, steps)]
        assert moment.slack == sum(-(-n // 8) * 8 - n for n in rows) < 8 * len(rows)
        assert moment.contiguous_slack == sum(r.longest - n for r, n in zip(running, rows))


def test_a_fork_shares_all_blocks_and_copies_the_one_that_is_written(graph: Any) -> None:
    # given a story of 15 rows, in blocks of 8
    server = serving.PagedServer(graph, blocks=8, block_size=8)
    request = server.submit(OWL, 8)
    for _ in range(3):
        server.step()
    other = server.fork(request, 8)
    before = dict(server.table.shared)
    while server.step():
        pass
    # then: the first block is read by both, the second was copied once, by who wrote first
    assert request.rows == other.rows and list(before) == [0, 1]
    assert [(old, new) for _, old, new in server.table.copies] == [(1, 2)]
    assert request.tokens == other.tokens == words(graph, OWL, 8)


def test_a_pass_refuses_what_does_not_fit_its_tokens(graph: Any) -> None:
    cases: list[tuple[Any, str]] = [
        ({"tokens": [[4, 5]], "positions": [[0]]}, "positions= as lists of equal length of 2"),
        ({"tokens": [[4, 5]], "mask": [[1]]}, "mask= as lists of equal length of 2"),
        ({"tokens": [[4], [5]], "positions": [[0], [0, 1]]}, "positions= as lists of equal length of 1"),
        ({"tokens": [[4, 5], [6]]}, "lists of equal length"),
        ({"tokens": []}, "lists of equal length"),
        ({"tokens": [4, 5]}, "lists of equal length"),
        ({"tokens": [[4]], "past": {}}, "past= has no rows of past_key_values"),
    ]
    for arguments, said in cases:
        with pytest.raises(kvviz.KvvizError, match=said):
            serving.forward(graph, **arguments)


def test_counts_that_make_no_sense_are_refused(graph: Any) -> None:
    rows = serving.empty_rows(graph)
    for wrong in (
        lambda: serving.tell(graph, OWL, 0),
        lambda: serving.speculate(graph, OWL, -5),
        lambda: serving.roll_back(rows, 1),
        lambda: serving.roll_back(rows, -3),
        lambda: serving.in_bits(4.5),  # type: ignore[arg-type]
        lambda: serving.PagedServer(graph, 4, 0),
    ):
        with pytest.raises(kvviz.KvvizError):
            wrong()
    with pytest.raises(kvviz.KvvizError, match="use the form with Concat"):
        serving.empty_rows(kvviz.load(STORYTELLER / "tensor_scatter" / "model.onnx"))


def test_what_the_pool_could_not_hold_is_refused_and_the_server_goes_on(graph: Any) -> None:
    # given a pool that one story fills
    server = serving.PagedServer(graph, blocks=3, block_size=8)
    with pytest.raises(kvviz.KvvizError, match=r"13 \+ 16 tokens needs 28 rows, but the pool has 24"):
        server.submit(OWL, 16)
    with pytest.raises(kvviz.KvvizError, match="token 9999 is outside of the model's vocabulary"):
        server.submit([9999], 4)
    with pytest.raises(kvviz.KvvizError, match="is not running"):
        server.fork(serving.Request(0, OWL, 1), 1)
    request = server.submit(np.array(OWL), 8)  # type: ignore[arg-type]
    server.step()
    with pytest.raises(kvviz.KvvizError, match="may need 2 blocks, and 0 are free and not promised"):
        server.fork(request, 8)
    with pytest.raises(kvviz.KvvizError, match="has 1 tokens; ask for more"):
        server.fork(request, 1)
    while server.step():
        pass
    assert request.tokens == words(graph, OWL, 8)


@settings(max_examples=25, deadline=None)
@given(st.integers(3, 12), st.integers(1, 6), st.data())
def test_who_was_let_in_is_served_to_the_end(graph: Any, blocks: int, size: int, data: st.DataObject) -> None:
    """Whatever is submitted and forked when: what the server takes it finishes, and all blocks come back."""
    server = serving.PagedServer(graph, blocks, size)
    for _ in range(data.draw(st.integers(2, 8))):
        forks = data.draw(st.booleans())
        try:
            if forks and server._running:
                number = data.draw(st.integers(0, len(server._running) - 1))
                server.fork(server._running[number], data.draw(st.integers(1, 12)))
            else:
                prompt = (OWL[:3], BEAR[:5], OWL[:2])[data.draw(st.integers(0, 2))]
                server.submit(prompt, data.draw(st.integers(1, 10)))
        except kvviz.KvvizError:
            pass  # refused: nothing has changed
        server.step()
    while server.step():
        pass
    assert all(len(request.tokens) == request.most for request in server.requests)
    assert len(server.table.free) == blocks
