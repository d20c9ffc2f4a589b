"""What holds for the cells whatever is called, and a slow search of every slot beside the fast one."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kvviz.errors import KvvizError
from kvviz.ggml.cell_map import AHEAD, DIRTY, FREE, LIVE, SHIFTED
from kvviz.ggml.find_slot import prepare
from kvviz.ggml.kv_cache import KVCache
from kvviz.ggml.ubatch_split import Token, ubatch

SEQS = 3
SEQ, POS = st.integers(0, SEQS - 1), st.integers(-1, 12)
APPEND = st.tuples(st.just("append"), st.integers(1, 5), SEQ)
CALL = st.one_of(
    APPEND,
    APPEND,
    st.tuples(st.just("seq_rm"), st.integers(-1, SEQS - 1), POS, POS),
    st.tuples(st.just("seq_cp"), SEQ, SEQ),
    st.tuples(st.just("seq_keep"), SEQ),
    st.tuples(st.just("seq_add"), SEQ, POS, POS, st.integers(-4, 4)),
    st.tuples(st.just("update")),
)
WINDOWS = st.sampled_from([(0, "none"), (3, "standard"), (4, "chunked"), (4, "symmetric")])
SETUP = st.tuples(st.integers(6, 14), st.booleans(), WINDOWS, st.integers(1, 6))


def cache_of(setup: Any) -> KVCache:
    size, unified, (n_swa, kind), n_ubatch = setup
    return KVCache(size, SEQS, unified, n_swa, kind, n_ubatch=n_ubatch, dtype="float32", head_dim=4)


def call(cache: KVCache, name: str, *arguments: Any) -> bool:
    """Whether the cache took it."""
    try:
        getattr(cache, name)(*arguments)
    except KvvizError:
        return False
    return True


def hides(kind: str, n_swa: int, key: int, query: int) -> bool:
    """Windows once more, by what they show."""
    shown = {
        "none": range(1 << 30),
        "standard": range(max(query - n_swa + 1, 0), 1 << 30),
        "chunked": range(query - query % max(n_swa, 1), 1 << 30),
        "symmetric": range(max(query - n_swa // 2, 0), query + n_swa // 2 + 1),
    }[kind]
    return key not in shown


def may_take(cache: KVCache, stream: int) -> list[bool]:
    cells = cache.streams.cells[stream]
    answer = []
    for pos, seqs in zip(cells.pos, cells.seqs):
        last = [max(p for p, s in zip(cells.pos, cells.seqs) if seq in s) for seq in seqs]
        answer.append(
            pos < 0 or (len(seqs) == 1 and hides(cache.streams.swa_type, cache.streams.n_swa, pos, last[0] + 1))
        )
    return answer


@settings(max_examples=150, deadline=None)
@given(SETUP, st.lists(CALL, max_size=14), st.integers(1, 6), SEQ)
def test_a_slot_is_the_first_cells_from_the_head_on_that_may_be_taken(
    setup: Any, calls: list[Any], wanted: int, seq: int
) -> None:
    cache = cache_of(setup)
    for one in calls:
        call(cache, *one)
    stream = cache.streams.stream_of(seq)
    usable = may_take(cache, stream)
    head, used = cache.streams.heads[stream], sum(pos >= 0 for pos in cache.streams.cells[stream].pos)
    start = 0 if head > used + 2 * wanted else head
    turn = [*range(start, cache.size), *range(start)]
    want = [cell for cell in turn if usable[cell]][:wanted]
    slot = cache.find_slot(wanted, seq)
    assert (None if slot is None else list(slot.cells[0])) == (want if len(want) == wanted else None)
    runs = [first for first in range(cache.size - wanted + 1) if all(usable[first : first + wanted])]
    together = cache.find_slot(wanted, seq, contiguous=True)
    if together is None:
        assert not runs
    else:
        (cells,) = together.cells
        assert cells[0] in runs
        assert list(cells) == list(range(cells[0], cells[0] + wanted))


@settings(max_examples=150, deadline=None)
@given(SETUP, st.lists(CALL, max_size=14))
def test_cells_and_rows_agree_with_each_other_after_every_call(setup: Any, calls: list[Any]) -> None:
    cache = cache_of(setup)
    size = cache.size
    for one in calls:
        before = cache.keys.data.copy()
        call(cache, *one)
        shown = cache.cells
        for stream, cells in enumerate(cache.streams.cells):
            assert cells.used == {cell for cell, seqs in enumerate(cells.seqs) if seqs}
            assert cells.used == {cell for cell, pos in enumerate(cells.pos) if pos >= 0}
            assert 0 <= cache.streams.heads[stream] <= size
            rows = slice(stream * size, (stream + 1) * size)
            held, turned = cache.keys.tokens[rows], cache.keys.positions[rows]
            for cell, state in enumerate(shown.states[stream]):
                live = cell in cells.used
                assert (state in (FREE, DIRTY)) != live
                assert (state == FREE) == (not live and held[cell] < 0)
                assert (state == AHEAD) == (live and held[cell] != cells.tokens[cell])
                if state in (LIVE, SHIFTED):
                    assert turned[cell] == cells.pos[cell] - cells.shift[cell]
                    key = cache.keys.rotated(cache.keys.made_up(held[cell])[None], [turned[cell]])[0]
                    np.testing.assert_allclose(cache.keys.data[stream * size + cell], key, atol=1e-4)
        if one[0] not in ("append", "update"):
            assert (cache.keys.data == before).all()
    cache.update()
    assert set(np.unique(cache.cells.states)) <= {FREE, LIVE, DIRTY}
    assert not cache.k_shift().any()


@settings(max_examples=150, deadline=None)
@given(
    SETUP,
    st.lists(
        st.one_of(
            APPEND,
            APPEND,
            st.tuples(st.just("tail"), SEQ, st.integers(0, 12)),
            st.tuples(st.just("front"), SEQ, st.integers(0, 12)),
        ),
        max_size=16,
    ),
)
def test_a_sequence_has_no_holes_as_long_as_callers_make_none(setup: Any, calls: list[Any]) -> None:
    cache = cache_of(setup)
    for kind, *arguments in calls:
        if kind == "append":
            call(cache, "append", *arguments)
        else:
            seq, pos = arguments
            cache.seq_rm(seq, *((pos, -1) if kind == "tail" else (0, pos)))
        for seq in range(SEQS):
            cells = cache.streams.cells[cache.streams.stream_of(seq)]
            held = sorted(cells.pos[cell] for cell in cells.of(seq))
            assert held == list(range(cache.pos_min(seq), cache.pos_max(seq) + 1)) or held == []


@settings(max_examples=100, deadline=None)
@given(SETUP, st.lists(CALL, max_size=10), st.integers(1, 4), SEQ)
def test_a_search_for_a_batch_leaves_what_windows_show_as_it_was(
    setup: Any, calls: list[Any], length: int, seq: int
) -> None:
    """What a search purges beside its slots it does not give back; no query of its sequence could see that.

    This holds for one micro-batch: where there are several, the search for a later one may purge positions that the
    next query would see, and llama.cpp does not give them back either.
    """
    cache = cache_of(setup)
    for one in calls:
        call(cache, *one)
    kv = cache.streams
    last = {one: cache.pos_max(one) for one in range(SEQS)}

    def visible() -> list[Any]:
        return [
            [
                (pos, {one for one in seqs if not hides(kv.swa_type, kv.n_swa, pos, last[one] + 1)})
                for pos, seqs in zip(cells.pos, cells.seqs)
                if any(not hides(kv.swa_type, kv.n_swa, pos, last[one] + 1) for one in seqs)
            ]
            for cells in kv.cells
        ]

    if kv.has_shift or kv.waiting:
        cache.update()
    before, heads = visible(), list(kv.heads)
    at = iter(range(last[seq] + 1, 99))
    prepare(kv, [ubatch([Token(next(at), (seq,)) for _ in range(length)])])
    assert visible() == before
    assert kv.heads == heads
