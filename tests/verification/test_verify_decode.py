"""A decode loop in the real onnxruntime: which present lies in which past, by address, beside the prediction."""

import json
import re
from itertools import product
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest

import kvviz
from kvviz.cli import main
from kvviz.errors import InputError
from kvviz.verification import verify_decode as module
from kvviz.verification.verify_decode import BINDINGS, VerifiedCache, VerifiedDecode
from tests.decode.oracle import told
from tests.decode.small import DECODERS as SMALL
from tests.decode.small import HEADS, ROWS, SIZE, small
from tests.engine.graphs import numbers, proto_of
from tests.graph.build import MODELS
from tests.test_models import DECODERS, reference

COUNT = 4
STATIC = {"o04_dynamo_static_llama_op18", "o06_mobius_static_llama_op24"}
STATIC |= {f"storyteller/{form}" for form in ("static_scatter_nd", "tensor_scatter")}
GROUPED = {"o07_genai_llama_int4", "storyteller/gqa", "storyteller/gqa_int4"}
SHARED = sorted(STATIC | GROUPED)


def verified(name: str, binding: str | None, **how: Any) -> VerifiedDecode:
    ref, states = reference(name), "encoder.out.last_hidden_state"
    given = {"encoder_hidden_states": ref[states]} if states in ref else {}
    path, prompt = MODELS / name / "model.onnx", ref["prompt"].tolist()
    found = kvviz.verify_decode(path, prompt, COUNT, given, binding=binding, **how)
    assert list(found.tokens) == ref["tokens"].tolist()[:COUNT]
    return found


@pytest.mark.parametrize("name", DECODERS)
def test_without_one_buffer_no_present_lies_in_a_past(name: str) -> None:
    # In turn; every way to keep a cache is verified with every binding below.
    found = verified(name, ("none", "io")[DECODERS.index(name) % 2])
    assert found.differences == () and found.agree == found.total and not found.wrong
    assert {one.run for one in found.rows} == set(range(len(found.trace.runs)))
    assert {one.observed for one in found.rows} == {"new"}
    # NumPy arrays that onnxruntime returns are memory of its own.
    assert not any(one.by_python for one in found.rows)
    meters = {cache.input: cache.runs for cache in found.trace.caches}
    for one in found.rows:
        after, before = meters[one.cache][one.run], meters[one.cache][one.run - 1]
        row = (after.bytes_written - after.bytes_copied) // after.rows_written
        # All tokens of the past are found at another address.
        assert one.moved == (before.valid * row if one.run else 0)
        assert (one.moved == one.copied) == (name not in STATIC) or not one.run


@pytest.mark.parametrize("name", SHARED)
def test_one_buffer_on_both_sides_holds_past_and_present(name: str) -> None:
    # The configuration of genai says of one model how its caches are handed on.
    found = verified(name, None if "genai" in name else "shared")
    assert found.binding == "shared"
    assert found.differences == () and not found.wrong
    assert {one.observed for one in found.rows} == {one.predicted for one in found.rows} == {"past"}
    assert not any(one.moved or one.by_python for one in found.rows)
    # Where rows are turned round before they are written, the buffer saves no copy.
    turned = "scatter_nd" in name or "o04" in name
    assert {bool(one.copied) for one in found.rows} == {turned}
    assert {"Transpose" in one.why and "binding it saves no copy" in one.why for one in found.rows} == {turned}


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("binding", BINDINGS)
def test_every_way_to_keep_a_cache_is_predicted(name: str, binding: str) -> None:
    one, prompt, count = small(name), [3, 7, 11], 12
    rows = one.options.get("kv_capacity")
    if binding == "shared" and name in ("concat", "merged", "attention", "multi_head", "window"):
        with pytest.raises(InputError, match=r"no cache of this graph can be bound to itself \(.*(Concat|Attention)"):
            kvviz.verify_decode(kvviz.load(one.proto), prompt, count, binding=binding)
        return
    found = kvviz.verify_decode(kvviz.load(one.proto), prompt, count, binding=binding, kv_capacity=rows)
    assert found.differences == () and not found.wrong and found.total == count * len(one.caches)
    assert {cache.observed for cache in found.rows} == {"past" if binding == "shared" else "new"}
    assert list(found.tokens) == told(one, prompt, count)[0]


class Loud(onnxruntime.SessionOptions):
    """Options of a session that goes on warning."""

    log_severity_level = property(lambda self: 2, lambda self, level: None)


@pytest.mark.parametrize(("binding", "loops"), [("none", 1), ("shared", 1), ("io", 2)])
def test_the_bytes_are_those_that_onnxruntime_itself_says_it_copies(
    binding: str, loops: int, capfd: pytest.CaptureFixture[str]
) -> None:
    # A bound loop is followed by one without binding, whose logits its own are compared with.
    found = verified("storyteller/tensor_scatter", binding, options=Loud())
    said = re.findall(r"copying past_cache to present_cache \((\d+) bytes\)", capfd.readouterr().err)
    whole = {one.copied for one in found.rows}
    assert whole == ({0} if binding == "shared" else {int(nbytes) for nbytes in said})
    assert len(said) == loops * len(found.rows)


def test_a_prediction_for_another_binding_disagrees() -> None:
    shared, own = verified("storyteller/gqa", "shared"), verified("storyteller/gqa", "io")
    for trace, other in ((shared.trace, own), (own.trace, shared)):
        seen = [VerifiedCache(one.run, one.cache, one.observed, one.moved, one.by_python) for one in other.rows]
        found = module._compared(trace, seen)
        assert len(found) == other.total and not any(one.agrees for one in found)
    (one,) = module._compared(own.trace, [VerifiedCache(0, "past.of.nothing", "new", 0, 0)])
    assert (one.predicted, one.agrees) == ("unknown", False) and "does not show" in one.why


def test_caches_to_start_from_stay_as_they_are() -> None:
    one = small("tensor_scatter")
    given = {name: numbers(1, HEADS, ROWS, SIZE, seed=len(name)) for name in one.caches}
    before = {name: array.copy() for name, array in given.items()}
    found = kvviz.verify_decode(kvviz.load(one.proto), [3, 7], COUNT, given, binding="shared")
    assert found.differences == () and not found.wrong and {cache.observed for cache in found.rows} == {"past"}
    assert all(given[name].tobytes() == array.tobytes() for name, array in before.items())


def test_a_batch_is_verified_as_a_whole() -> None:
    prompts = [[5, 17, 33], [7, 9]]
    path = MODELS / "storyteller" / "gqa" / "model.onnx"
    for binding in BINDINGS:
        found = kvviz.verify_decode(path, prompts, COUNT, binding=binding)
        assert found.differences == () and not found.wrong
        assert list(found.tokens) == kvviz.decode(path, prompts, COUNT, progress=False).tokens


def hazardous(order: tuple[str, str]) -> onnx.ModelProto:
    """A decoder that adds up its past; whether before or after the present is written, nothing in the graph says."""
    nodes = {
        "write": "present = TensorScatter <axis = 1> (past, rows, write_indices)",
        "read": "sums = ReduceSum <keepdims = 1> (past, one)",
    }
    first, second = (nodes[name] for name in order)
    text = f"""g (int64[1, S] input_ids, int64[1] write_indices, float[1, 8, 6] past)
        => (float[1, S, 6] logits, float[1, 8, 6] present)
        <float[6, 6] table, float[6, 6] head, int64[1] one = {{1}}> {{
        rows = Gather (table, input_ids)  {first}  {second}
        all = Add (rows, sums)  logits = MatMul (all, head) }}"""
    model = proto_of(text, 24)
    for seed, name in enumerate(("table", "head")):
        model.graph.initializer.append(onnx.numpy_helper.from_array(numbers(6, 6, seed=seed), name))
    return model


def test_a_result_that_sharing_makes_wrong_is_said_with_its_hazard() -> None:
    wrong = []
    for order, way in product((("write", "read"), ("read", "write")), ("DEFAULT", "PRIORITY_BASED")):
        options = onnxruntime.SessionOptions()
        options.execution_order = getattr(onnxruntime.ExecutionOrder, way)
        found = kvviz.verify_decode(kvviz.load(hazardous(order)), [1, 4, 2], COUNT, options=options, binding="shared")
        assert found.differences == () and {cache.observed for cache in found.rows} == {"past"}
        broken = any(hazard.broken for hazard in kvviz.hazards(found.trace))
        assert bool(found.wrong) == broken == ("WRONG RESULT" in str(found))
        assert not broken or "reads past after TensorScatter" in found.wrong
        wrong.append(broken)
    assert sorted(set(wrong)) == [False, True]


def test_the_command_decodes_where_a_prompt_is_given(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = str(MODELS / "storyteller" / "gqa" / "model.onnx")
    assert main(["verify", path, "--prompt", "5,17,33", "--tokens", "3", "--binding", "shared"]) == 0
    report = capsys.readouterr().out
    assert "18 of 18 presents lie where predicted" in report and "in place" in report
    assert main(["verify", path, "--prompt", "5,17,33", "--binding", "io", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["agree"] == data["total"] == len(data["rows"]) == 24 and data["binding"] == "io"
    page = tmp_path / "decode.html"
    assert main(["verify", path, "--prompt", "5,17,33", "--binding", "shared", "--html", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    # Each node has the time of each of its runs, in a strip above the debugger.
    assert "24 of 24</span>" in text and text.count("<rect x=") > 4 * 30
    capsys.readouterr()
    assert main(["verify", path, "--binding", "io"]) == 2
    assert "--binding needs --prompt" in capsys.readouterr().err
