"""The allocator's plan against the places at which llama.cpp's tensors were recorded."""

import pytest

from kvviz.ggml.order.gallocr import plan_memory
from tests.ggml.recorded_lines import read_lines
from tests.ggml.recordings import DATA, recording
from tests.ggml.worst_case import reserved_graph


@pytest.mark.parametrize(
    ("file", "first", "cells_seen", "hidden_embd"),
    [
        ("old_smollm2_cpy_fa_off_defrag", 0, 32, 0),
        ("smollm2_fa_off", 0, 0, 576),
        ("smollm2_fa_on_ubatch4", 1, 0, 576),
        ("smollm2_fa_on_q8kv_shift", 0, 0, 576),
        ("tiny_gemma3_fa_off", 0, 0, 32),
        ("tiny_mamba", 0, 0, 32),
    ],
)
def test_every_recorded_place_in_the_compute_buffer_is_that_of_the_plan(
    file: str, first: int, cells_seen: int, hidden_embd: int
) -> None:
    recorded = read_lines(DATA / f"{file}.jsonl.gz")
    config = recorded.meta["config"]
    tokens = min(config["n_ctx"], config["n_ubatch"] or 512)
    many, one = recorded.graphs[first : first + 2]
    reserved, copies = reserved_graph(many, one, tokens, config["n_ctx"], cells_seen, hidden_embd)
    plan = plan_memory(reserved)
    assert plan.nbytes == recorded.buffers["compute"]
    order = [copies[tensor] for tensor in (*many.leafs, *many.nodes)]
    # Shifts and defragmentation are other graphs.
    alike = [graph for graph in recorded.graphs if len(graph.nodes) == len(many.nodes)]
    assert len(alike) >= 3
    for graph in alike:
        places = [
            (tensor.address, plan.places[copy].offset)
            for tensor, copy in zip((*graph.leafs, *graph.nodes), order)
            if tensor.buffer.endswith("compute") and tensor.view_src is None
        ]
        assert len(places) > 50
        assert [real for real, _ in places] == [ours for _, ours in places]


@pytest.mark.parametrize("name", ["tiny_mamba.jsonl.gz", "tiny_gemma3_fa_off.jsonl.gz"])
def test_no_two_storages_of_the_compute_buffer_share_an_address_at_once(name: str) -> None:
    trace = recording(name).trace
    end = len(trace.steps)
    placed = [
        (one.address, one.address + one.capacity, one.born, end if one.freed is None else one.freed)
        for one in trace.storages
        if one.arena == "CPU compute" and one.capacity and one.address is not None
    ]
    assert len(placed) > 40
    for number, (low, high, born, freed) in enumerate(placed):
        for first, last, began, ended in placed[:number]:
            # What is freed with an op and what that op makes are both there for a moment.
            assert high <= first or last <= low or ended <= born or freed <= began
