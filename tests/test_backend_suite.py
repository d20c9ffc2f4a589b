"""The node tests of ONNX, with poisoned memory and read-only inputs; and what the reference evaluator gets wrong."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.backend.test.case.test_case import TestCase as Case
from onnx.backend.test.runner import Runner

import kvviz

# Outputs drawn at random: no two implementations agree.
RANDOM = {f"test_bernoulli{kind}{form}" for kind in ("", "_double", "_seed") for form in ("", "_expanded")}
REFERENCE_FAILS = {
    "test_if_opt",
    "test_loop16_seq_none",
    "test_scan_sum",
    "test_scatter_with_axis",
    "test_scatter_without_axis",
    "test_range_float_type_positive_delta_expanded",
    "test_range_int32_type_negative_delta_expanded",
}


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    """All node cases; making them divides by zero on purpose."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {case.name: case for case in load_model_tests(kind="node")}


def as_value(value: Any) -> Any:
    """Test data as read-only arrays, lists of them, or None."""
    if isinstance(value, onnx.TensorProto):
        value = numpy_helper.to_array(value)
    if isinstance(value, onnx.SequenceProto):
        value = numpy_helper.to_list(value)
    if isinstance(value, onnx.OptionalProto):
        value = numpy_helper.to_optional(value)
    if isinstance(value, list):
        return [as_value(element) for element in value]
    if isinstance(value, np.ndarray):
        value = value.copy()
        value.flags.writeable = False
    return value


def assert_alike(got: Any, wanted: Any, rtol: float, atol: float) -> None:
    """Equal within the case's tolerance, as ONNX's own runner compares; that one cannot compare lists."""
    if isinstance(wanted, list):
        assert isinstance(got, list) and len(got) == len(wanted)
        for one, other in zip(got, wanted):
            assert_alike(one, other, rtol, atol)
    else:
        Runner.assert_similar_outputs([wanted], [got], rtol, atol)


def run_case(case: Case) -> None:
    """Run a case through kvviz; raises where the result is not the expected one."""
    graph = kvviz.load(case.model)
    for inputs, outputs in case.data_sets:
        feeds = {value.name: as_value(data) for value, data in zip(graph.inputs, inputs)}
        trace = kvviz.run(graph, feeds, poison=True)
        for value, wanted in zip(graph.outputs, outputs):
            assert_alike(trace.outputs[value.name], as_value(wanted), case.rtol, case.atol)


def test_every_node_case_gives_the_expected_outputs(cases: dict[str, Case]) -> None:
    # given
    assert len(cases) >= 1884
    failed = {}
    # when
    for name, case in cases.items():
        if name in RANDOM:
            continue
        try:
            run_case(case)
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {str(error)[:200]}"
    # then
    assert failed == {}


@pytest.mark.parametrize("name", sorted(REFERENCE_FAILS))
def test_cases_that_the_reference_evaluator_gets_wrong_come_out_right(cases: dict[str, Case], name: str) -> None:
    run_case(cases[name])


@pytest.mark.parametrize("name", sorted(RANDOM))
def test_random_outputs_have_the_right_type_and_range(cases: dict[str, Case], name: str) -> None:
    case = cases[name]
    ((inputs, (wanted,)),) = case.data_sets
    graph = kvviz.load(case.model)
    got = kvviz.run(graph, {graph.inputs[0].name: as_value(inputs[0])}).outputs[graph.outputs[0].name]
    assert got.dtype == as_value(wanted).dtype and got.shape == as_value(wanted).shape
    assert set(np.unique(got)) <= {0, 1}
