"""What the table promises of the numeric kernels, held against ONNX's own schemas."""

import inspect

import onnx
import pytest

from kvviz.ops.kernels import attributes_of
from kvviz.ops.registry import OpSpec, known

FAMILIES = {
    *("activation", "cast", "conv", "elementwise", "matmul", "norm", "qproduct", "quant", "reduce", "rnn", "select"),
}
MINE = [spec for spec in known() if spec.kernel and spec.kernel.__module__.rsplit(".", 1)[-1] in FAMILIES]
DEFAULT = [spec for spec in MINE if spec.domain == "" and onnx.defs.has(spec.op_type)]


# Not the same in all versions, or left open: GRU-1 spells "forward" wrong, Selu-1 has rounder numbers, Gemm-6 has a
# broadcast of 0 that later versions imply, and a bidirectional RNN needs two activations.
NO_ONE_DEFAULT = ("GRU", "Selu", "Gemm", "RNN")
HISTORY = [schema for schema in onnx.defs.get_all_schemas_with_history() if schema.domain == ""]


def schemas_of(spec: OpSpec) -> list:
    """Every version of the operator's schema whose nodes this kernel gets."""
    versions = sorted((s for s in HISTORY if s.name == spec.op_type), key=lambda s: s.since_version)
    end = min((s.since for s in DEFAULT if s.op_type == spec.op_type and s.since > spec.since), default=10**9)
    in_force = [s for s in versions if s.since_version <= spec.since][-1:]
    return in_force + [s for s in versions if spec.since < s.since_version < end]


@pytest.mark.parametrize("spec", DEFAULT, ids=lambda s: f"{s.op_type}-{s.since}")
def test_a_kernel_takes_every_input_and_attribute_of_its_schemas_with_their_defaults(spec):
    parameters = inspect.signature(spec.kernel).parameters.values()
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    many = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    for schema in schemas_of(spec):
        assert many or len(positional) >= len(schema.inputs)
        assert len([p for p in positional if p.default is p.empty]) <= schema.min_input
        named, others = attributes_of(spec.kernel, "", spec.op_type, schema.since_version)
        taken = named | others
        for name, attribute in schema.attributes.items():
            assert name in taken or name == "consumed_inputs", f"{schema.name}-{schema.since_version} has {name}"
            if name in taken and attribute.default_value.name and schema.name not in NO_ONE_DEFAULT:
                default = onnx.helper.get_attribute_value(attribute.default_value)
                default = default.decode() if isinstance(default, bytes) else default
                default = tuple(default) if isinstance(default, list) else default
                assert taken[name] == pytest.approx(default), f"{schema.name}-{schema.since_version} {name}"


def test_what_may_be_overwritten_takes_out_and_nothing_else_does():
    for spec in MINE:
        assert bool(spec.overwrites) == ("out" in spec.wants), spec.op_type
