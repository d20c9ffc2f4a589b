"""What people get wrong: one clear sentence each, nothing changed, and no traceback of internals in a notebook.

Public functions take the path of what they take, and say what is meant where they are given something else.
"""

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from IPython.core.interactiveshell import InteractiveShell

import kvviz
from kvviz.decode.run_sessions import SingleRun
from kvviz.engine.planning import main_plan
from kvviz.engine.policy import ideal
from kvviz.errors import GraphError, InputError, KvvizError, LimitError, LoadError, OpError, UnsupportedOpsError
from tests.engine.graphs import graph_of, numbers, proto_of
from tests.graph.build import MODELS
from tests.work import at_most

ADD = "g (float[batch, 3] x, float[3] bias) => (float[batch, 3] y) { y = Add(x, bias) }"
X, BIAS = numbers(2, 3), numbers(3)
GOOD: dict[str, Any] = {"x": X, "bias": BIAS}
CONCAT = MODELS / "storyteller" / "concat" / "model.onnx"

INPUTS: dict[str, tuple[dict[str, Any], str]] = {
    "a wrong name": ({**GOOD, "biass": BIAS}, "no input named 'biass'; its inputs are 'x', 'bias'"),
    "one missing": ({"x": X}, r"missing input: bias float32\[3\]"),
    "all missing": ({}, r"missing inputs: x float32\[batch, 3\], bias float32\[3\]"),
    "a wrong dtype": (
        {**GOOD, "x": X.astype(np.float64)},
        r"'x' has dtype float64, but the graph declares float32; convert it with \.astype\(np\.float32\)",
    ),
    "another byte order": ({**GOOD, "x": X.astype(">f4")}, "'x' has dtype >f4, but the graph declares float32"),
    "a wrong rank": ({**GOOD, "x": X[0]}, r"'x' has shape \[3\], but the graph declares float32\[batch, 3\]"),
    "a wrong length": ({**GOOD, "bias": numbers(4)}, r"'bias' has shape \[4\], but the graph declares float32\[3\]"),
    "None": ({**GOOD, "x": None}, r"'x' is None; it must be float32\[batch, 3\]"),
    "words for numbers": ({**GOOD, "bias": ["a", "b", "c"]}, r"'bias' must be float32\[3\]: could not convert"),
    "a ragged list": ({**GOOD, "x": [[1, 2, 3], [4]]}, r"'x' must be float32\[batch, 3\]: .*inhomogeneous"),
    "a name of a book's length": ({**GOOD, "n" * 10_000: X}, "no input named 'n{77}\\.\\.\\.'"),
}


@pytest.mark.parametrize(("inputs", "message"), INPUTS.values(), ids=INPUTS)
def test_an_input_that_does_not_fit_is_told_in_one_sentence(inputs: dict, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        kvviz.run(graph_of(ADD), inputs)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


def test_a_donation_that_cannot_be_and_an_output_or_a_policy_that_does_not_exist_are_refused() -> None:
    bias = BIAS.copy()
    bias.flags.writeable = False
    with pytest.raises(InputError, match="cannot donate 'z': it is not among the inputs that were given"):
        kvviz.run(graph_of(ADD), {"x": X, "bias": bias}, donate=["z"])
    with pytest.raises(InputError, match="'bias' is donated, but its array is read-only; pass a copy or do not donate"):
        kvviz.run(graph_of(ADD), {"x": X, "bias": bias}, donate=["bias"])
    with pytest.raises(GraphError, match="the graph has no value named 'z'; its outputs are y"):
        kvviz.run(graph_of(ADD), GOOD, outputs=["y", "z"])
    with pytest.raises(KvvizError, match=r"there is no policy 'best'; choose one of .*ideal.*never"):
        kvviz.run(graph_of(ADD), GOOD, policy="best")


def test_all_operators_without_a_kernel_are_listed_at_once_however_deep() -> None:
    text = """g (float[2] x, bool c) => (float[2] y) {
        a = Frobnicate(x) b = local.Quux(a) d = Frobnicate(b)
        y = If (c) <then_branch = t () => (float[2] p) { p = Deep(d) },
                    else_branch = e () => (float[2] q) { q = Neg(d) }> }"""
    with pytest.raises(UnsupportedOpsError) as caught:
        kvviz.run(graph_of(text), {"x": numbers(2), "c": np.array(True)})
    message = str(caught.value)
    assert "Frobnicate (opset 21) ×2" in message and "local.Quux (opset 1) ×1" in message and "Deep" in message


def test_an_attribute_that_no_kernel_knows_is_refused_not_ignored() -> None:
    text = "g (float[2] x) => (float[2] y) { [act] y = com.microsoft.FastGelu <flavour = 3> (x) }"
    proto = proto_of(text)
    proto.opset_import.add(domain="com.microsoft", version=1)
    with pytest.raises(UnsupportedOpsError, match=r"'act' \(com\.microsoft\.FastGelu\) has attributes .*: flavour"):
        kvviz.run(kvviz.load(proto), {"x": numbers(2)})


def test_an_op_that_fails_is_named_with_its_inputs_and_the_cause() -> None:
    text = "g (float[a, b] x, float[c, d] z) => (float[e, f] y) { [product] y = MatMul(x, z) }"
    with pytest.raises(OpError) as caught:
        kvviz.run(graph_of(text), {"x": numbers(2, 3), "z": numbers(4, 2)})
    message = str(caught.value)
    for part in ("node 'product' (MatMul) failed", "x float32[2, 3]", "z float32[4, 2]"):
        assert part in message
    assert "\n" not in message.strip()


def test_an_op_that_fails_leaves_a_debugger_where_it_was() -> None:
    text = "g (float[2] x, int64[1] i) => (float[1] y) { a = Exp(x) [pick] y = Gather(a, i) }"
    session = SingleRun(graph_of(text), {"x": numbers(2), "i": np.array([5])})
    assert session.advance()
    for _ in range(2):
        with pytest.raises(OpError, match="node 'pick'"):
            session.advance()
    assert [s.node for s in session.trace.steps] == ["a"]


HUGE = {
    "ConstantOfShape": "g (int64[1] n) => (float[a] y) { [big] y = ConstantOfShape(n) }",
    "Expand": "g (int64[1] n) => (float[a] y) <float[1] x = {1}> { [big] y = Expand(x, n) }",
    "Tile": "g (int64[1] n) => (float[a] y) <float[1] x = {1}> { [big] y = Tile(x, n) }",
    "Pad": """g (int64[1] n) => (float[a] y) <float[1] x = {1}, int64[1] z = {0}> {
        p = Concat <axis = 0> (z, n) [big] y = Pad(x, p) }""",
    "Range": """g (int64[1] n) => (int64[a] y) <int64 z = {0}, int64 o = {1}> {
        m = Squeeze(n) [big] y = Range(z, m, o) }""",
    "OneHot": "g (int64[1] n) => (float[a, b] y) <int64[1] i = {0}, float[2] v = {0, 1}> { [big] y = OneHot(i, n, v) }",
}


@pytest.mark.parametrize("op", HUGE)
def test_a_tensor_beyond_the_limit_is_refused_before_memory_is_taken(op: str) -> None:
    graph, words = graph_of(HUGE[op]), rf"node 'big' \({op}\): a tensor of shape .* bytes; the limit is 8,589,934,592"
    tracemalloc.start()
    try:
        with at_most(100_000), pytest.raises(LimitError, match=words):
            kvviz.run(graph, {"n": np.array([10**12])})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2**20


def test_running_out_of_memory_is_an_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_of("g (float[2] x) => (float[2] y) { [big] y = Erf(x) }")
    kvviz.run(graph, {"x": numbers(2)})

    def full(*args: Any, **kwargs: Any) -> None:
        raise MemoryError("Unable to allocate 3.64 TiB")

    monkeypatch.setattr(main_plan(graph, None, ideal).order[0], "call", full)
    with pytest.raises(LimitError, match=r"'big' \(Erf\) needs more memory than there is: Unable to allocate 3\.64"):
        kvviz.run(graph, {"x": numbers(2)})


DECODES: dict[str, tuple[dict[str, Any], str]] = {
    "an empty prompt": ({"prompt": []}, "the prompt is empty; give at least one token"),
    "a text without a tokenizer": ({"prompt": "once upon"}, "the prompt is a text: pass tokenizer="),
    "words that are not there": (
        {"prompt": "once xylophone zebu", "tokenizer": ["<s>", "once"]},
        "vocabulary of 2 words does not have 'xylophone', 'zebu'",
    ),
    "fractions": ({"prompt": [1.5, 2]}, "a prompt is a text, a list of token numbers, or a list of such lists"),
    "a tokenizer that is none": ({"prompt": [1], "tokenizer": 5}, "tokenizer must be a list of words, or an object"),
    "too little room": ({"prompt": [1, 2], "kv_capacity": 4}, "is 4 rows, but prompt and new tokens need 9"),
    "tokens among the inputs": (
        {"prompt": [1, 2], "inputs": {"input_ids": np.array([[1, 2]])}},
        "input 'input_ids' takes the tokens of the prompt; leave it out",
    ),
    "an input of another shape": (
        {"prompt": [1], "inputs": {"past_key_values.0.key": numbers(1, 2, 0, 3)}},
        "'past_key_values.0.key' has shape",
    ),
    "caches of different lengths": (
        {
            "prompt": [1],
            "inputs": {f"past_key_values.0.{s}": numbers(1, 2, n, 16) for s, n in (("key", 1), ("value", 2))},
        },
        r"the caches to start from have different lengths: \[1, 2\] rows",
    ),
}


@pytest.mark.parametrize(("options", "message"), DECODES.values(), ids=DECODES)
def test_a_decode_that_cannot_begin_says_why(options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        kvviz.decode(kvviz.load(CONCAT), max_new_tokens=8, progress=False, **options)


@pytest.mark.parametrize("form", ["static_scatter_nd", "tensor_scatter"])
def test_a_static_cache_that_is_too_small_is_refused_before_the_first_run(form: str) -> None:
    graph = kvviz.load(MODELS / "storyteller" / form / "model.onnx")
    with pytest.raises(InputError, match="holds 160 rows, but prompt and new tokens need 162"):
        kvviz.decode(graph, [1, 2, 3], max_new_tokens=160, progress=False)


def test_a_graph_without_tokens_is_not_decoded() -> None:
    with pytest.raises(InputError, match=r"no input takes tokens .*; use kvviz\.run"):
        kvviz.decode(graph_of(ADD), [1, 2])


@pytest.mark.parametrize("error", [InputError, OpError, LimitError, KvvizError])
def test_a_notebook_shows_an_error_as_one_line(error: type[KvvizError], monkeypatch: pytest.MonkeyPatch) -> None:
    shell = InteractiveShell()
    shown: list[str] = []
    monkeypatch.setattr(shell, "_showtraceback", lambda etype, value, lines: shown.extend(lines))
    try:
        raise error("the prompt is empty")
    except KvvizError:
        shell.showtraceback()
    assert shown == [f"{error.__name__}: the prompt is empty"]


TEXT = "g ({} [2, n] x) => ({} [2, n] y) {{ y = Identity(x) }}"


def test_lists_become_arrays_of_the_declared_type() -> None:
    cases: list[tuple[str, Any, np.ndarray]] = [
        ("int64", [[1, 2], [3, 4]], np.array([[1, 2], [3, 4]])),
        ("float", [[1, 2], [3, 4]], np.array([[1, 2], [3, 4]], np.float32)),
        ("float", [[0.5], [2.0]], np.array([[0.5], [2]], np.float32)),
        ("int64", [[], []], np.zeros((2, 0), np.int64)),
        ("bool", [[True], [False]], np.array([[True], [False]])),
    ]
    for dtype, given, want in cases:
        graph = graph_of(TEXT.format(dtype, dtype))
        output = kvviz.run(graph, {"x": given}).outputs["y"]
        assert output.dtype == want.dtype
        np.testing.assert_array_equal(output, want)


def test_lists_that_would_lose_something_are_refused() -> None:
    cases: list[tuple[str, Any]] = [
        ("int64", [[1.0], [2.5]]),
        ("bool", [[0.5], [1.0]]),
        ("int64", [[1j], [2]]),
        ("float", [["a"], ["b"]]),
    ]
    for dtype, given in cases:
        with pytest.raises(InputError, match="input 'x' must be"):
            kvviz.run(graph_of(TEXT.format(dtype, dtype)), {"x": given})


LLAMA = MODELS / "o01_optimum_llama" / "model.onnx"
PROMPT = [5, 17, 33]

OF_A_GRAPH: dict[str, Callable[[Any], Any]] = {
    "decode": lambda given: kvviz.decode(given, PROMPT, 2).tokens,
    "run": lambda given: kvviz.run(given, kvviz.inputs(kvviz.load(LLAMA))).outputs["logits"].tolist(),
    "inputs": lambda given: sorted(kvviz.inputs(given)),
    "compare": lambda given: kvviz.compare(given, policies=["ideal"], prompt=PROMPT, max_new_tokens=2).equal,
    "debug": lambda given: kvviz.debug(given, prompt=PROMPT, max_new_tokens=2).trace.prompt,
    "plan": lambda given: repr(kvviz.plan(given)),
    "lessons.recompute": lambda given: kvviz.lessons.recompute(given, PROMPT, 2).tokens,
    "lessons.changed_rows": lambda given: kvviz.lessons.changed_rows(given, PROMPT, PROMPT).tolist(),
    "lessons.serving.empty_rows": lambda given: sorted(kvviz.lessons.serving.empty_rows(given)),
    "lessons.serving.forward": lambda given: kvviz.lessons.serving.forward(given, [PROMPT]).next_tokens,
    "lessons.serving.tell": lambda given: kvviz.lessons.serving.tell(given, PROMPT, 2).tokens,
    "lessons.serving.speculate": lambda given: kvviz.lessons.serving.speculate(given, PROMPT, 2).tokens,
    "lessons.serving.PagedServer": lambda given: sorted(kvviz.lessons.serving.PagedServer(given, 4, 4).pool),
}
OF_A_TRACE: dict[str, Callable[[Any], Any]] = {
    "explain": lambda given: str(kvviz.explain(given)),
    "hazards": lambda given: [hazard.sentence for hazard in kvviz.hazards(given)],
    "cache_warnings": lambda given: [str(warning) for warning in kvviz.cache_warnings(given)],
    "plot.memory": lambda given: kvviz.plot.memory(given).get_ylabel(),
    "plot.cache": lambda given: kvviz.plot.cache(given).get_ylabel(),
    "plot.copies": lambda given: kvviz.plot.copies(given).get_ylabel(),
    "plot.lifetimes": lambda given: kvviz.plot.lifetimes(given).get_xlabel(),
    "Pair": lambda given: repr(kvviz.Pair(given, given)),
}


@pytest.fixture(scope="module")
def trace() -> kvviz.Trace:
    return kvviz.decode(kvviz.load(LLAMA), PROMPT, 2)


@pytest.fixture(scope="module")
def saved(trace: kvviz.Trace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "x.kvviz"
    trace.save(path)
    return path


@pytest.mark.parametrize("name", OF_A_GRAPH)
def test_what_takes_a_graph_takes_the_path_of_a_model(name: str) -> None:
    use = OF_A_GRAPH[name]
    assert use(LLAMA) == use(str(LLAMA)) == use(kvviz.load(LLAMA))


@pytest.mark.parametrize("name", sorted(OF_A_GRAPH.keys() - {"debug"}))
def test_what_takes_a_graph_says_so_of_a_trace_and_of_anything_else(name: str, trace: kvviz.Trace, saved: Path) -> None:
    for given in (trace, saved):
        with pytest.raises(InputError, match=f"kvviz.{name} takes a graph, and this is a trace"):
            OF_A_GRAPH[name](given)
    with pytest.raises(InputError, match=f"{name} takes a graph or the path of a model, not an object of type int"):
        OF_A_GRAPH[name](3)


@pytest.mark.parametrize("name", OF_A_TRACE)
def test_what_takes_a_trace_takes_the_path_of_a_saved_one(name: str, saved: Path) -> None:
    assert OF_A_TRACE[name](saved) == OF_A_TRACE[name](kvviz.Trace.load(saved))


@pytest.mark.parametrize("name", [*OF_A_TRACE, "fork"])
def test_what_takes_a_trace_says_what_to_run_for_a_model(name: str) -> None:
    use = OF_A_TRACE.get(name, lambda given: kvviz.fork(given, policy="rten"))
    for given in (LLAMA, kvviz.load(LLAMA)):
        with pytest.raises(InputError, match=rf"{name} takes a trace, and this is a model: run it with kvviz\.run"):
            use(given)
    with pytest.raises(InputError, match="takes a trace or the path of a saved one, not None"):
        use(None)


def test_load_says_of_a_saved_trace_or_recording_what_to_call(saved: Path, tmp_path: Path) -> None:
    assert len(kvviz.debug(saved).trace.steps) == len(kvviz.Trace.load(saved).steps)
    with pytest.raises(LoadError, match="is a saved trace, not a model; open it with ") as caught:
        kvviz.load(saved)
    line = str(caught.value).rpartition("open it with ")[2]
    assert isinstance(eval(line, {"kvviz": kvviz}), kvviz.Trace)
    for name, text in (("a.jsonl", '{"schema": 1}'), ("a.dot", "digraph G {}")):
        (tmp_path / name).write_text(text)
        with pytest.raises(LoadError, match=r"kvviz\.ggml\.load"):
            kvviz.load(tmp_path / name)


def test_a_token_outside_of_the_vocabulary_is_named_as_that() -> None:
    graph = kvviz.load(LLAMA)
    assert kvviz.decode(graph, [5, 159], 1).tokens
    for prompt in ([5, 160], [[5, 17], [160]], np.array([160])):
        with pytest.raises(InputError, match="token 160 is outside of the model's vocabulary, which has 160 tokens"):
            kvviz.decode(graph, prompt, 1)
