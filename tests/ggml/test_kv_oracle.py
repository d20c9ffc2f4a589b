"""The model of the cells against llama.cpp itself: the same calls, the same cells, masks, shifts and rotated keys."""

from __future__ import annotations

import gzip
import json
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvviz.errors import KvvizError
from kvviz.ggml.iswa_cache import KVCacheISWA, swa_size
from kvviz.ggml.kv_cache import KVCache
from kvviz.ggml.kv_history import Decoded
from kvviz.ggml.recurrent_memory import RecurrentMemory

DATA = Path(__file__).resolve().parent.parent / "data" / "llama"
MEMORIES = json.loads(gzip.decompress((DATA / "kv_cells.json.gz").read_bytes()))["memories"]
RECORDED = json.loads(gzip.decompress((DATA / "kv_inputs.json.gz").read_bytes()))
WINDOW = 20  # of the gemma3 model


def named(model: str) -> list[Any]:
    chosen = [one for one in MEMORIES if one["config"]["model"] == model]
    return [pytest.param(one, id=f"{one['name']} {len(one['calls'])}") for one in chosen]


def made(config: dict[str, Any]) -> Any:
    seqs, unified = config["n_seq_max"], config["unified"]
    size = config["n_ctx"] // (1 if unified else seqs)
    if config["model"] == "gemma3":
        return KVCacheISWA(size, seqs, unified, WINDOW, n_ubatch=config["n_ubatch"], dtype="float32")
    return KVCache(size, seqs, unified, n_ubatch=config["n_ubatch"], dtype="float32", head_dim=8)


def same(graph: dict[str, Any], decoded: list[Decoded]) -> None:
    """Cells and masks of one graph."""
    assert [list(one.rows) for one in decoded] == graph["idxs"]
    bits = [[list(one.mask.shape), zlib.crc32(np.packbits(np.isfinite(one.mask)).tobytes())] for one in decoded]
    assert bits == graph["masks"]


@pytest.mark.parametrize("memory", [*named("llama"), *named("gemma3")])
def test_cells_and_masks_are_those_of_llama_cpp_after_every_call(memory: dict[str, Any]) -> None:
    cache = made(memory["config"])
    caches = [cache.swa, cache.base] if isinstance(cache, KVCacheISWA) else [cache]
    compared = 0
    for kind, *arguments in (call["call"] for call in memory["calls"]):
        told = memory["calls"][compared]
        compared += 1
        if kind != "decode":
            getattr(cache, kind)(*arguments)
        elif told["rc"]:
            with pytest.raises(KvvizError, match="no cells for"):
                cache.decode(arguments[0])
        else:
            graphs = told["graphs"]
            shifts = [one.k_shift() for one in caches if one.streams.has_shift]
            moved = [[[int(row), int(by[row])] for row in np.flatnonzero(by)] for by in shifts]
            assert moved == [graph["shift"] for graph in graphs if "shift" in graph]
            pieces = cache.decode(arguments[0])
            for graph, piece in zip([one for one in graphs if "idxs" in one], pieces, strict=True):
                same(graph, [piece.swa, piece.base] if isinstance(cache, KVCacheISWA) else [piece])
        positions = [[cache.pos_min(seq), cache.pos_max(seq)] for seq in range(memory["config"]["n_seq_max"])]
        assert positions == told["pos"], (compared, kind)
    assert compared == len(memory["calls"])


def same_rows(cache: KVCache, before: np.ndarray, theirs: set[int]) -> set[int]:
    """Rows that changed here; they are those that changed there, but for keys that differ in their last bits only."""
    ours = set(np.flatnonzero((cache.keys.data != before).any(axis=1)).tolist())
    # llama.cpp multiplies one token and several with other kernels, and a key turned to and fro is rounded.
    either = sorted(ours ^ theirs)
    np.testing.assert_allclose(cache.keys.data[either], before[either], atol=1e-5)
    return ours & theirs


@pytest.mark.parametrize("memory", named("llama"))
def test_bytes_of_k_change_when_llama_cpp_changes_them_and_in_the_same_rows(memory: dict[str, Any]) -> None:
    cache = made(memory["config"])
    updates = compared = 0
    for told in memory["calls"]:
        kind, *arguments = told["call"]
        before = cache.keys.data.copy()
        if kind != "decode":
            getattr(cache, kind)(*arguments)
            assert "changed" not in told
            assert (cache.keys.data == before).all()
            continue
        # What the first graph finds changed is a copy of streams; what the one behind the K-shift finds, the rotation.
        graphs = told["graphs"]
        looks = graphs[:2] if graphs and "shift" in graphs[0] else graphs[:1]
        changed = {row for graph in looks for rows in graph.get("changed_before", []) for row in rows}
        if graphs and "shift" in graphs[0] and len(graphs) == 1:
            changed |= set(*told.get("changed", []))
        cache.begin()
        updates += len(same_rows(cache, before, changed)) > 0
        if told["rc"]:
            continue
        # Of a model with one layer a key depends on the token alone, and the script took tokens by position.
        positions = [pos for pos, _ in arguments[0]]
        plain = np.stack([cache.keys.made_up(pos % 60) for pos in positions])
        before = cache.keys.data.copy()
        cache.decode(arguments[0], cache.keys.rotated(plain, positions))
        if len(graphs) == 1 and not changed:
            compared += len(same_rows(cache, before, set(*told.get("changed", []))))
    assert updates > 3
    assert compared > 50


@pytest.mark.parametrize("memory", named("llama"))
def test_keys_are_rotated_as_ggml_rotates_them(memory: dict[str, Any]) -> None:
    cache = made(memory["config"])
    turned = 0
    for told in memory["calls"]:
        graphs = told.get("graphs", [])
        for graph, after in pairwise(graphs):
            if "shift" not in graph or "turned" not in after:
                continue
            by, rows = dict(graph["shift"]), after["changed_before"][0]
            for row, values in zip(rows, after["turned"]):
                key, want = np.array(values[:8], np.float32), np.array(values[8:], np.float32)
                np.testing.assert_allclose(cache.keys.rotated(key[None], [by[row]])[0], want, atol=2e-5, rtol=1e-5)
                turned += 1
    assert turned > 3


@pytest.mark.parametrize("memory", named("mamba"))
def test_states_are_copied_from_the_rows_that_llama_cpp_copies_them_from(memory: dict[str, Any]) -> None:
    states = RecurrentMemory(memory["config"]["n_seq_max"], memory["config"]["n_ubatch"])
    copied = 0
    for told in memory["calls"]:
        kind, *arguments = told["call"]
        if kind == "decode":
            found = [list(slot.copies) for slot in states.decode(arguments[0])]
            assert found == [graph["scopy"] for graph in told["graphs"]]
            copied += len(found)
        else:
            getattr(states, kind)(*arguments)
        assert [[states.pos_min(seq), states.pos_max(seq)] for seq in range(states.size)] == told["pos"]
    assert copied > 30


def test_the_scripts_reach_what_is_hard_to_get_right() -> None:
    """Full caches, scattered cells, several sequences a token, micro-batches, deferred copies, divided positions."""
    calls = [call for memory in MEMORIES for call in memory["calls"]]
    graphs = [graph for call in calls for graph in call.get("graphs", [])]
    scattered = sum(b - a != 1 for graph in graphs for rows in graph.get("idxs", []) for a, b in pairwise(rows))
    assert scattered > 200
    assert sum(call.get("rc", 0) != 0 for call in calls) >= 5
    assert sum(call["call"][0] == "seq_div" for call in calls) >= 5
    assert sum(call["call"][0] == "seq_cp" for call in calls) > 20
    assert any(len(seqs) > 1 for call in calls if call["call"][0] == "decode" for _, seqs in call["call"][1])


@pytest.mark.parametrize("name", [name for name in RECORDED if "mamba" not in name])
def test_a_recorded_decode_writes_the_rows_and_reads_the_lengths_of_the_model(name: str) -> None:
    told = RECORDED[name]
    config, width = told["config"], 32 if "gemma" in name else 192
    (size,) = told["cells"]
    cache = KVCache(size, config["n_seq_max"], n_ubatch=config["n_ubatch"] or 512)
    graphs = iter(told["graphs"])
    for place, step in enumerate(told["script"]):
        if place == len(told["script"]) - 1:
            for call in "; ".join(told["memory_calls"]).split("; ") if told["memory_calls"] else []:
                method, _, arguments = call.rstrip(")").partition("(")
                getattr(cache, method)(*map(int, arguments.split(",")))
        if cache.streams.has_shift:
            assert cache.k_shift().tolist() == next(graphs)["shift"]
        for piece in cache.decode([(pos, seqs) for _, pos, seqs, _ in step["rows"]]):
            graph = next(graphs)
            assert [list(piece.rows)] * len(graph["k_idxs"]) == graph["k_idxs"]
            assert [piece.n_kv] == graph["n_kv"]
            transposed = list(piece.slot.elements(size, width))
            plain = config["flash_attn"] == "on"
            assert graph["v_idxs"] == [list(piece.rows) if plain else transposed] * len(graph["k_idxs"])
    assert next(graphs, None) is None


def test_a_recorded_mamba_keeps_its_state_in_its_row() -> None:
    told = RECORDED["tiny_mamba"]
    states = RecurrentMemory(1)
    for step, graph in zip(told["script"], told["graphs"], strict=True):
        (slot,) = states.decode([(pos, seqs) for _, pos, seqs, _ in step["rows"]])
        assert list(slot.copies) == graph["rs_s_copy"]


@pytest.mark.parametrize(
    "arguments, cells",
    [
        ((256, 4), 256),
        ((4096, 1024), 1536),
        ((4096, 1000, 1, True, 24), 1024),
        ((4096, 1024, 3), 3584),
        ((512, 1024), 512),
    ],
)
def test_the_cache_for_windows_has_room_for_them_and_one_micro_batch(arguments: tuple[Any, ...], cells: int) -> None:
    assert swa_size(*arguments) == cells
