"""llama.cpp's KV cells, case by case: scattered slots, bytes that stay, metadata ahead of data, padding."""

from __future__ import annotations

import numpy as np
import pytest

from kvviz.errors import KvvizError
from kvviz.ggml.kq_mask import attend
from kvviz.ggml.kv_cache import KVCache
from kvviz.ggml.ubatch_split import Token, ubatch


@pytest.fixture
def holes() -> KVCache:
    """Eight cells: four of sequence 0, two of sequence 1, and positions 1 and 2 of sequence 0 removed."""
    cache = KVCache(8, n_seq_max=2)
    cache.append(4, seq=0)
    cache.append(2, seq=1)
    cache.seq_rm(0, 1, 3)
    return cache


def test_removal_frees_cells_and_lowers_the_head_to_the_first(holes: KVCache) -> None:
    assert holes.cells.heads == (1,)
    assert [cell for cell in range(8) if holes.cells.pos[0, cell] < 0] == [1, 2, 6, 7]


def test_three_tokens_get_scattered_cells_and_a_contiguous_search_finds_none(holes: KVCache) -> None:
    assert holes.find_slot(3, seq=1, contiguous=True) is None
    slot = holes.find_slot(3, seq=1)
    assert slot is not None
    assert slot.cells == ((1, 2, 6),)
    (decoded,) = holes.append(3, seq=1)
    assert decoded.rows == (1, 2, 6)
    assert holes.cells.heads == (7,)


def test_rows_of_freed_cells_hold_the_old_keys_until_others_are_written(holes: KVCache) -> None:
    old = holes.keys.data.copy()
    assert (old[[1, 2]] != 0).any()
    assert [holes.state(cell) for cell in (1, 2, 6)] == ["freed, dirty", "freed, dirty", "empty"]
    slot = holes.find_slot(3, seq=1)
    assert slot is not None
    batch = ubatch([Token(2 + i, (1,)) for i in range(3)])
    decoded = holes.apply(slot, batch)
    assert (holes.keys.data == old).all()
    assert [holes.state(cell) for cell in (1, 2, 6)] == ["ahead of data"] * 3
    holes.write(decoded)
    assert (holes.keys.data[[1, 2, 6]] != old[[1, 2, 6]]).any(axis=1).all()
    assert [holes.state(cell) for cell in (1, 2, 6)] == ["live"] * 3


@pytest.mark.parametrize("neox", [False, True])
def test_a_moved_position_changes_no_key_before_the_update_and_the_right_ones_at_it(neox: bool) -> None:
    cache = KVCache(8, dtype="float32", neox=neox, n_head=2)
    cache.append(6)
    before = cache.keys.data.copy()
    cache.seq_rm(0, 1, 3)
    cache.seq_add(0, 3, -1, -2)
    assert cache.cells.pos[0].tolist() == [0, -1, -1, 1, 2, 3, -1, -1]
    assert cache.k_shift().tolist() == [0, 0, 0, -2, -2, -2, 0, 0]
    assert (cache.keys.data == before).all()
    assert [cache.state(cell) for cell in (0, 1, 3)] == ["live", "freed, dirty", "shift pending"]
    cache.update()
    assert (cache.keys.data[:3] == before[:3]).all()
    # The key of token 3 at position 1, as if it had been written there.
    for cell, token, pos in ((3, 3, 1), (4, 4, 2), (5, 5, 3)):
        made = cache.keys.made_up(token)[None]
        np.testing.assert_allclose(cache.keys.data[cell], cache.keys.rotated(made, [pos])[0], atol=1e-5)
    assert set(cache.cells.states[0]) == {0, 1, 4}


def test_rotation_is_that_of_complex_numbers() -> None:
    keys = KVCache(1, head_dim=4, dtype="float32", base=100.0).keys
    row = np.array([[1.0, 2.0, 3.0, 4.0]], np.float32)
    turned = np.array([(1 + 2j) * np.exp(5j), (3 + 4j) * np.exp(5j / 10)])
    np.testing.assert_allclose(keys.rotated(row, [5])[0], turned.view(np.float64), rtol=1e-6)


def test_a_copy_between_streams_sets_cells_at_once_and_bytes_at_the_update() -> None:
    cache = KVCache(8, n_seq_max=2, unified=False)
    cache.append(3, seq=0)
    cache.seq_cp(0, 1)
    assert cache.cells.pos[1].tolist() == cache.cells.pos[0].tolist()
    assert [cache.state(cell, 1) for cell in (0, 2, 3)] == ["ahead of data", "ahead of data", "empty"]
    assert not cache.keys.data[8:].any()
    cache.update()
    assert (cache.keys.data[8:] == cache.keys.data[:8]).all()
    assert cache.state(0, 1) == "live"


def test_a_copy_between_streams_takes_a_pending_shift_with_it() -> None:
    cache = KVCache(8, n_seq_max=2, unified=False, dtype="float32")
    cache.append(4, seq=0)
    cache.seq_rm(0, 0, 1)
    cache.seq_add(0, 1, -1, -1)
    cache.seq_cp(0, 1)
    assert cache.k_shift().tolist() == [0, -1, -1, -1, 0, 0, 0, 0] * 2
    cache.update()
    np.testing.assert_array_equal(cache.keys.data[:8], cache.keys.data[8:])
    # The freed cell's bytes went along; no sequence of the target ever held them.
    assert cache.state(0, 1) == "freed, dirty"


def test_a_copy_of_a_part_between_streams_is_refused() -> None:
    cache = KVCache(8, n_seq_max=2, unified=False)
    cache.append(4, seq=0)
    with pytest.raises(KvvizError, match="only a whole sequence"):
        cache.seq_cp(0, 1, 1, 3)


def test_a_copy_inside_a_stream_shares_cells_which_are_free_when_both_have_left() -> None:
    cache = KVCache(8, n_seq_max=2)
    cache.append(3, seq=0)
    cache.seq_cp(0, 1)
    assert cache.cells.text() == "MMM....."
    cache.seq_rm(0)
    assert cache.cells.text() == "111....."
    cache.seq_rm(1, 0, 2)
    assert cache.cells.text() == "..1....."


def test_dividing_positions_leaves_keys_astray_as_the_shift_grows_by_what_the_position_lost() -> None:
    """Position 6 by 2 is 3, and its key should be turned back by 3; llama.cpp turns it on by 3."""
    cache = KVCache(8)
    cache.append(7)
    cache.seq_div(0, 6, 7, 2)
    assert cache.k_shift().tolist() == [0, 0, 0, 0, 0, 0, 3, 0]
    cache.update()
    assert cache.cells.pos[0, 6] == 3
    assert cache.keys.positions[6] == 9
    assert cache.state(6) == "astray"


@pytest.mark.parametrize("fill, finite", [(0.0, True), (float("nan"), False)])
def test_attention_is_given_256_cells_where_5_are_used_and_a_nan_in_the_padding_spoils_it(
    fill: float, finite: bool
) -> None:
    cache = KVCache(1024, dtype="float32", fill=fill)
    (decoded,) = cache.append(5)
    assert decoded.n_kv == 256
    assert np.isfinite(decoded.mask).sum(axis=2).tolist() == [[1, 2, 3, 4, 5]]
    values = cache.keys.data[: decoded.n_kv]
    keys = np.nan_to_num(values)
    found = attend(keys[:5], keys, values, decoded.mask[0])
    assert np.isfinite(found).all() == finite
    assert np.isnan(found).all() != finite
    if finite:
        np.testing.assert_allclose(found[0], values[0], rtol=1e-6)


@pytest.mark.parametrize("used, length", [(256, 256), (257, 512), (600, 768), (1000, 1000)])
def test_the_length_steps_by_256_up_to_the_size(used: int, length: int) -> None:
    cache = KVCache(1000, n_ubatch=1000)
    (decoded,) = cache.append(used)
    assert decoded.n_kv == length


def test_a_window_gives_hidden_cells_to_new_tokens_and_purges_what_is_before_them() -> None:
    cache = KVCache(6, n_swa=3)
    cache.append(6)
    (decoded,) = cache.append(2)
    # The head is behind the end, so the search goes round to cell 0; of positions 0 to 3 the window shows none to 6.
    assert decoded.slot.cells == ((0, 1),)
    assert cache.pos_min(0) == 2
    assert cache.cells.pos[0].tolist() == [6, 7, 2, 3, 4, 5]
    assert "takes over cells 0, 1, hidden by the window" in cache.history[-1].text


def test_a_batch_that_does_not_fit_leaves_the_cells_as_they_were() -> None:
    cache = KVCache(8, n_ubatch=4)
    cache.append(6)
    before = cache.cells
    with pytest.raises(KvvizError, match="no cells for 4 tokens: 2 of 8 are empty"):
        cache.append(4)
    assert cache.cells.pos.tolist() == before.pos.tolist()
    assert cache.cells.seqs == before.seqs
    assert cache.cells.heads == before.heads


@pytest.mark.parametrize(
    "tokens, text",
    [
        ([(5, (0,))], "begin at 4"),
        ([(4, (0,)), (6, (0,))], "skip positions"),
        ([(4, (2,))], "no sequence 2"),
        ([(-1, (0,))], "position -1"),
        ([], "has no tokens"),
    ],
)
def test_a_batch_that_llama_decode_refuses_is_refused_by_name(
    tokens: list[tuple[int, tuple[int, ...]]], text: str
) -> None:
    cache = KVCache(8, n_seq_max=2)
    cache.append(4)
    with pytest.raises(KvvizError, match=text):
        cache.decode(tokens)


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda: KVCache(0), "one cell, not 0"),
        (lambda: KVCache(8, n_seq_max=300), "n_seq_max is 300"),
        (lambda: KVCache(8, n_swa=0, swa_type="standard"), "window cannot have 0"),
        (lambda: KVCache(8, swa_type="round"), "'round'"),
        (lambda: KVCache(8, head_dim=3), "3 elements"),
        (lambda: KVCache(8, dtype="q8_0"), "'q8_0'"),
        (lambda: KVCache(8, n_ubatch=0), "micro-batch cannot have 0"),
    ],
)
def test_a_cache_that_cannot_be_is_refused(call: object, text: str) -> None:
    with pytest.raises(KvvizError, match=text):
        call()  # type: ignore[operator]


def test_every_call_is_kept_with_the_cells_after_it(holes: KVCache) -> None:
    calls = [change.call for change in holes.history]
    assert calls == ["", "decode 4 tokens", "decode 2 tokens", "seq_rm(0, 1, 3)"]
    assert [change.cells.text() for change in holes.history] == ["........", "0000....", "000011..", "0..011.."]
