"""What the table promises of the numeric kernels, held against ONNX's own schemas."""

from __future__ import annotations

import inspect

import numpy as np
import onnx
import pytest

from kvviz.ops.registry import OpSpec, known

FAMILIES = [
    "activation",
    "cast",
    "channel_norm",
    "conv",
    "elementwise",
    "gelu",
    "matmul",
    "nbits",
    "norm",
    "pool",
    "qproduct",
    "quant",
    "rank",
    "reduce",
    "rnn",
    "select",
    "softmax",
    "unary",
]
MINE = [spec for spec in known() if spec.kernel.__module__.rsplit(".", 1)[-1] in FAMILIES]
DEFAULT = [spec for spec in MINE if spec.domain == "" and onnx.defs.has(spec.op_type)]


def schemas_of(spec: OpSpec) -> list:
    """Every version of the operator's schema that this kernel is given."""
    later = [s.since for s in MINE if (s.domain, s.op_type) == (spec.domain, spec.op_type) and s.since > spec.since]
    end = min(later, default=10**9)
    newest = onnx.defs.get_schema(spec.op_type, max(spec.since, 1)) if spec.since >= 1 else None
    found = {} if newest is None else {newest.since_version: newest}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "" and schema.name == spec.op_type and spec.since <= schema.since_version < end:
            found[schema.since_version] = schema
    return list(found.values())


@pytest.mark.parametrize("spec", DEFAULT, ids=lambda s: f"{s.op_type}-{s.since}")
def test_a_kernel_takes_every_attribute_of_its_schemas_with_their_defaults(spec):
    taken = inspect.signature(spec.kernel).parameters
    ignored = {"consumed_inputs", "output_sequence"}
    for schema in schemas_of(spec):
        for name, attribute in schema.attributes.items():
            if name in ignored:
                continue
            assert name in taken, f"{schema.name}-{schema.since_version} has {name}"
            if attribute.default_value.name and schema.name not in ("GRU", "Selu", "Gemm", "RNN"):
                default = onnx.helper.get_attribute_value(attribute.default_value)
                default = default.decode() if isinstance(default, bytes) else default
                default = tuple(default) if isinstance(default, list) else default
                assert taken[name].default == pytest.approx(default), f"{schema.name}-{schema.since_version} {name}"


@pytest.mark.parametrize("spec", DEFAULT, ids=lambda s: f"{s.op_type}-{s.since}")
def test_a_kernel_takes_every_input_of_its_schemas(spec):
    parameters = inspect.signature(spec.kernel).parameters.values()
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    many = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    for schema in schemas_of(spec):
        assert many or len(positional) >= len(schema.inputs)
        required = [p for p in positional if p.default is p.empty]
        assert len(required) <= schema.min_input


def test_what_may_be_overwritten_takes_out_and_nothing_else_does():
    for spec in MINE:
        assert bool(spec.overwrites) == ("out" in spec.wants), spec.op_type


@pytest.mark.parametrize(
    "name", ["Add", "Mul", "Relu", "Sigmoid", "Softmax", "Exp", "MatMul", "Gelu", "LayerNormalization"]
)
def test_no_result_is_widened_by_a_constant_of_the_formula(name):
    spec = next(s for s in MINE if s.op_type == name and s.domain == "")
    count = {"Add": 2, "Mul": 2, "MatMul": 2, "LayerNormalization": 3}.get(name, 1)
    for dtype in ("f2", "f4", "f8"):
        assert spec.kernel(*[np.ones((2, 2), dtype)] * count).dtype == np.dtype(dtype)


def test_every_domain_of_the_contrib_operators_is_registered():
    wanted = """
        BiasGelu DequantizeLinear DynamicQuantizeMatMul FastGelu FusedMatMul GatherBlockQuantized Gelu
        MatMulIntegerToFloat MatMulNBits QuantizeLinear QuickGelu SkipLayerNormalization
        SkipSimplifiedLayerNormalization
    """
    assert set(wanted.split()) <= {spec.op_type for spec in MINE if spec.domain == "com.microsoft"}
