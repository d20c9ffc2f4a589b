"""Wrong arguments of what serving systems do: one clear sentence, and nothing is half done."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvviz
from kvviz.lessons import serving
from tests.lessons.test_serving import BEAR, OWL, STORYTELLER, words


@pytest.fixture(scope="module")
def graph() -> Any:
    return kvviz.load(STORYTELLER / "concat" / "model.onnx")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"tokens": [[4, 5]], "positions": [[0]]}, "positions= as lists of equal length of 2"),
        ({"tokens": [[4, 5]], "mask": [[1]]}, "mask= as lists of equal length of 2"),
        ({"tokens": [[4], [5]], "positions": [[0], [0, 1]]}, "positions= as lists of equal length of 1"),
        ({"tokens": [[4, 5], [6]]}, "lists of equal length"),
        ({"tokens": []}, "lists of equal length"),
        ({"tokens": [4, 5]}, "lists of equal length"),
        ({"tokens": [[4]], "past": {}}, "past= has no rows of past_key_values"),
    ],
)
def test_a_pass_refuses_what_does_not_fit_its_tokens(graph: Any, arguments: dict[str, Any], said: str) -> None:
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
        lambda: serving.in_bits(4, 8),
        lambda: serving.PagedServer(graph, 4, 0),
    ):
        with pytest.raises(kvviz.KvvizError):
            wrong()


def test_no_more_guesses_are_checked_than_were_asked_for(graph: Any) -> None:
    long = serving.speculate(graph, OWL, 6, lambda tokens, most: [0] * 50, width=4)
    assert long.guessed <= 4 * long.passes and long.bytes_copied == 0
    assert serving.speculate(graph, OWL, 6, lambda tokens, most: [0] * 50, width=0).guessed == 0


def test_a_prompt_with_an_unknown_token_is_refused_and_others_are_served(graph: Any) -> None:
    server = serving.PagedServer(graph, blocks=8, block_size=8)
    request = server.submit(np.array(OWL), 4)  # type: ignore[arg-type]
    with pytest.raises(kvviz.KvvizError, match="token 9999 is outside of the model's vocabulary"):
        server.submit([9999], 4)
    while server.step():
        pass
    assert request.tokens == words(graph, OWL, 4)


def test_a_fork_that_the_pool_could_not_hold_is_refused_and_the_server_goes_on(graph: Any) -> None:
    # given a pool that one story fills
    server = serving.PagedServer(graph, blocks=3, block_size=8)
    request = server.submit(OWL, 8)
    server.step()
    # when
    with pytest.raises(kvviz.KvvizError, match="may need 2 blocks, and 0 are free and not promised"):
        server.fork(request, 8)
    with pytest.raises(kvviz.KvvizError, match="has 1 tokens; ask for more"):
        server.fork(request, 1)
    # then
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
