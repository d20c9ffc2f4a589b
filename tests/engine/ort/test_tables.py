"""The tables of Alias and MayInplace, measured on the installed onnxruntime one operator at a time.

An operator's outputs are read by Shape only, so that none is an output of the graph. Each input is handed over once
dead (made by a Concat that nobody else reads) and else kept (an input of the graph, which is never overwritten). What
the operator takes less in new memory, it took from that input.
"""

import onnx
import pytest
from onnx import helper, numpy_helper

import kvviz.ops  # noqa: F401  (registers every kernel)
from kvviz.graph.model import Node
from kvviz.ops.registry import known
from kvviz.runtimes.ort import refusal
from tests.engine.ort.catalog import CASES, Case
from tests.engine.ort.oracle import Observed, blocks, observe

# Operators that onnxruntime 1.31 has no kernel for: it runs their function bodies, or does not know them.
FUNCTIONS = {"CastLike", "GroupNormalization", "HardSwish", "Mish", "Swish"}
UNKNOWN = {("", "CausalConvWithState"), ("", "LinearAttention"), ("", "SwiGLU")}
UNKNOWN |= {("com.microsoft", "SimplifiedLayerNormalization")}
# Told in graphs of several nodes: `test_planner`.
NOT_TENSORS = {("", op) for op in ("Optional", "OptionalGetElement", "OptionalHasElement")}
# Sequences, maps and text: their memory lies elsewhere, and no entry of the tables is for them.
NOT_NUMBERS = {("", op) for op in ("SequenceErase", "SequenceInsert", "SplitToSequence")}
NOT_NUMBERS |= {("ai.onnx.ml", op) for op in ("LabelEncoder", "ZipMap")}
# Ensembles whose attributes are a whole model: measured against onnxruntime in tests/ops.
ENSEMBLES = {("ai.onnx.ml", op) for op in ("TreeEnsembleClassifier", "TreeEnsembleRegressor")}
NOT_NUMBERS |= {("", op) for op in ("RegexFullMatch", "StringNormalizer", "StringSplit")}


def versions(case: Case) -> list[int]:
    """One opset for each version of an operator that a case is written for."""
    if case.domain or case.since == 21:
        return [21]
    schemas = [s for s in onnx.defs.get_all_schemas_with_history() if s.name == case.op_type]
    found = {max(s.since_version, case.since, 7) for s in schemas if s.domain == case.domain}
    return sorted(v for v in found if v <= case.until)


def as_node(case: Case, opset: int) -> Node:
    names = tuple(f"x{i}" if x is not None else "" for i, x in enumerate(case.inputs))
    outputs = tuple(f"y{j}" for j in range(case.outputs))
    return Node("it", case.op_type, case.domain, names, outputs, 0, opset=opset)


def observed(case: Case, opset: int, dead: int | None = None) -> Observed:
    """One operator in onnxruntime, one of its inputs dead."""
    arrays = {f"x{i}": x for i, x in enumerate(case.inputs) if x is not None}
    fixed = {name: arrays.pop(name) for name in [f"x{i}" for i in case.fixed] if name in arrays}
    names = ["dead" if i == dead else f"x{i}" if x is not None else "" for i, x in enumerate(case.inputs)]
    made = [f"y{j}" for j in range(case.outputs)]
    nodes = [] if dead is None else [helper.make_node("Concat", [f"x{dead}"], ["dead"], "dead", axis=0)]
    nodes.append(helper.make_node(case.op_type, names, made, "it", domain=case.domain, **case.attributes))
    nodes += [helper.make_node("Shape", [name], [f"{name}_shape"]) for name in made]
    graph = helper.make_graph(
        nodes,
        "one",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for name, x in arrays.items()
        ],
        [onnx.ValueInfoProto(name=f"{name}_shape") for name in made],
        [numpy_helper.from_array(x, name) for name, x in fixed.items()],
    )
    imports = [helper.make_opsetid("", opset), *([helper.make_opsetid(case.domain, 1)] if case.domain else [])]
    model = helper.make_model(graph, ir_version=10, opset_imports=imports)
    return observe(model, arrays, mem_reuse=False)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_operator_takes_as_much_new_memory_as_the_tables_say(case: Case) -> None:
    for opset in versions(case):
        seen = observed(case, opset)
        # A function's body is spelled out there.
        assert ("it" not in seen.allocated) == (case.op_type in FUNCTIONS)
        if case.op_type in FUNCTIONS:
            continue
        kept = seen.allocated["it"]
        made = [(tuple(shape), nbytes) for shape, nbytes in zip(seen.outputs, seen.made["it"], strict=True)]
        node = as_node(case, opset)
        shared = {j for i, j in refusal.alias(node) if i < len(case.inputs) and j < case.outputs}
        sizes = [0 if j in shared else blocks(nbytes) for j, (_, nbytes) in enumerate(made)]
        assert kept == sum(sizes), opset
        first = case.inputs[0]
        may = refusal.may_inplace(node, None if first is None else first.dtype)
        for i, x in enumerate(case.inputs):
            if x is None or not x.ndim or i in case.fixed:
                continue
            saved = [sizes[j] for j, like in enumerate(made) if (i, j) in may and like == (x.shape, x.nbytes)]
            assert observed(case, opset, i).allocated["it"] == kept - sum(saved[:1]), (opset, i)


def test_every_operator_with_a_kernel_here_is_measured() -> None:
    ours = {(spec.domain, spec.op_type) for spec in known()}
    assert ours - {(case.domain, case.op_type) for case in CASES} == UNKNOWN | NOT_TENSORS | NOT_NUMBERS | ENSEMBLES


def test_every_entry_of_the_tables_is_measured_where_it_shows() -> None:
    """An input of the output's size is among the cases, so that an entry that is wrong would be noticed."""
    shown: set[tuple[str, str]] = set()
    for case in CASES:
        node = as_node(case, 21)
        shown |= {(case.domain, case.op_type)} if refusal.alias(node) or refusal.may_inplace(node) else set()
    listed = set(refusal.ALIAS) | set(refusal.MAY_INPLACE)
    assert listed - shown == NOT_TENSORS - {("", "OptionalHasElement")}
