"""The tables of Alias and MayInplace, measured on the installed onnxruntime one operator at a time."""

import numpy as np
import onnx
import pytest

import kvviz.ops  # noqa: F401  (registers every kernel)
from kvviz.graph.model import Node
from kvviz.ops.registry import known
from kvviz.runtimes.ort import refusal
from tests.engine.ort.catalog import CASES
from tests.engine.ort.measure import Case, measure
from tests.engine.ort.oracle import blocks

# Operators that onnxruntime 1.31 has no kernel for: it runs their function bodies, or does not know them.
FUNCTIONS = {"CastLike", "GroupNormalization", "HardSwish", "Mish", "Swish"}
UNKNOWN = {("", "CausalConvWithState"), ("", "LinearAttention"), ("", "SwiGLU")}
UNKNOWN |= {("com.microsoft", "SimplifiedLayerNormalization")}
# Measured in graphs of several nodes: `test_planner`.
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


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_operator_takes_as_much_new_memory_as_the_tables_say(case: Case) -> None:
    for opset in versions(case):
        measured = measure(case, opset)
        assert (measured is None) == (case.op_type in FUNCTIONS)
        if measured is None:
            continue
        node = as_node(case, opset)
        shared = {j for i, j in refusal.alias(node) if i < len(case.inputs) and j < case.outputs}
        sizes = [0 if j in shared else blocks(y.nbytes) for j, y in enumerate(measured.outputs)]
        assert measured.kept == sum(sizes), opset
        first = case.inputs[0]
        may = refusal.may_inplace(node, None if first is None else first.dtype)
        for position, taken in measured.dead.items():
            x = case.inputs[position]
            assert x is not None
            saved = [
                size
                for j, (size, y) in enumerate(zip(sizes, measured.outputs))
                if (position, j) in may and same_size(x, y)
            ]
            assert taken == measured.kept - sum(saved[:1]), (opset, position)


def same_size(x: np.ndarray, y: np.ndarray) -> bool:
    return x.shape == y.shape and x.dtype.itemsize == y.dtype.itemsize


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
