"""Every operator that a kernel of ours knows, with inputs that onnxruntime accepts, to be measured there."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from onnx import helper

Array = np.ndarray
MS: dict[str, Any] = {"domain": "com.microsoft", "since": 21}


@dataclass(frozen=True)
class Case:
    """One operator with inputs that it accepts, as many as possible of the size of an output.

    ``fixed``: inputs that are constants. ``since``, ``until``: opset versions for which it is written.
    """

    op_type: str
    inputs: tuple[Array | None, ...]
    domain: str = ""
    outputs: int = 1
    fixed: frozenset[int] = frozenset()
    since: int = 1
    until: int = 26
    attributes: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        kinds = "-".join("none" if x is None else str(x.dtype) for x in self.inputs)
        return f"{self.domain}{'.' * bool(self.domain)}{self.op_type}-{kinds}-{self.since}"


def some(*shape: int, dtype: Any = np.float32) -> Array:
    """Numbers from 0.1 upwards (whole ones for integers), different for different places."""
    places = np.arange(np.prod(shape, dtype=np.int64)).reshape(shape)
    whole = np.dtype(dtype).kind in "iub"
    return (places % 5 if whole else places / places.size * 0.8 + 0.1).astype(dtype)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


def case(op_type: str, *inputs: Array | None, fixed: tuple[int, ...] = (), **facts: Any) -> Case:
    """A case; keywords that are no fields of `Case` are attributes of the node."""
    fields = {name: facts.pop(name) for name in ("domain", "outputs", "since", "until") if name in facts}
    arrays = tuple(None if x is None else np.asarray(x) for x in inputs)
    return Case(op_type, arrays, fixed=frozenset(fixed), attributes=facts, **fields)


F, G, D = some(4, 4), some(4, 4) + 1, some(4, 4, dtype=np.float64)
I, L, B, U = (some(4, 4, dtype=t) for t in (np.int32, np.int64, np.bool_, np.uint8))  # noqa: E741
IMAGE = some(1, 4, 4, 4)
C = some(4)
F1 = np.float32(1)

UNARY = (
    "Abs Acos Asin Asinh Atan Atanh Ceil Cos Cosh Elu Erf Exp Floor HardSigmoid Hardmax Identity LeakyRelu Log"
    " LogSoftmax LpNormalization Neg Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softmax Softplus Softsign"
    " Sqrt Tan Tanh ThresholdedRelu Celu Flatten Transpose IsNaN IsInf Gelu HardSwish Mish Swish"
)
BINARY = "Add Sub Mul Div Pow Max Min Mean Sum Equal Greater Less GreaterOrEqual LessOrEqual PRelu MatMul"
REDUCE = (
    "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare"
)


def elementwise() -> Iterator[Case]:
    for op in UNARY.split():
        yield case(op, F, since={"Celu": 12, "Round": 11}.get(op, 1))
    yield case("Acosh", G)
    for op in BINARY.split():
        yield case(op, F, G, since=11 if op == "Equal" else 7)
    for op in ["Relu", "Softmax", "Sigmoid", "Identity", "Flatten", "Neg", "Abs", "Sqrt", "LogSoftmax", "Tanh"]:
        yield case(op, D, since=14)
    for op in ["Identity", "Neg", "Abs", "Relu", "Flatten", "Transpose", "Sign"]:
        yield case(op, I, since=14)
    for op in ("Add", "Mul", "Max"):
        yield case(op, L, L + 1, since=13)
    for op, x in [*product(("And", "Or", "Xor"), [B]), *product(("BitwiseAnd", "BitwiseOr", "BitwiseXor"), [I])]:
        yield case(op, x, ~x)
    yield case("Not", B)
    yield case("BitwiseNot", I)
    for x in (F, L):
        yield case("Where", B, x, x + 1)
    yield case("Clip", F, until=10, min=0.2, max=0.5)
    yield case("Clip", F, np.float32(0.2), np.float32(0.5), since=11)
    yield case("Clip", L, np.int64(1), np.int64(3), since=12)
    yield case("Mod", L, L + 1)
    yield case("Mod", F, G, fmod=1)
    yield case("BitShift", U, U, direction="LEFT")
    for to in (np.int32, np.uint32, np.float64, np.bool_, np.float32):
        yield case("Cast", F, since=9, to=helper.np_dtype_to_tensor_dtype(np.dtype(to)))
    yield case("Cast", L, since=9, to=11)
    yield case("Cast", B, since=9, to=2)
    yield case("CastLike", F, I)
    yield case("BitCast", F, to=6)
    for op in ("CumSum", "CumProd"):
        yield case(op, F, np.array(0, np.int64))
    yield case("Dropout", F, until=11, since=7)
    yield case("Dropout", F, since=12)
    yield case("Dropout", F, outputs=2, since=12)
    yield case("Dropout", F, np.float32(0.5), np.array(False), outputs=2, since=12)
    yield case("QuantizeLinear", F, F1, np.uint8(0))
    yield case("DequantizeLinear", U, F1, np.uint8(0))
    yield case("DynamicQuantizeLinear", F, outputs=3)


def moving() -> Iterator[Case]:
    for shape in (ints(2, 8), ints(4, 4)):
        yield case("Reshape", F, shape, since=5)
    for op, x in (("Squeeze", some(1, 4, 4)), ("Unsqueeze", F)):
        yield case(op, x, until=12, axes=[0])
        yield case(op, x, ints(0), since=13)
    yield case("Concat", F, since=4, axis=0)
    yield case("Expand", F, ints(4, 4))
    yield case("Tile", F, ints(1, 1), since=6)
    yield case("Pad", F, until=10, since=2, pads=[0, 0, 0, 0])
    yield case("Pad", F, ints(0, 0, 0, 0), since=11)
    yield case("Slice", F, until=9, starts=[0], ends=[4])
    yield case("Slice", F, ints(0), ints(4), since=10)
    yield case("Split", F, until=12, since=2, split=[4])
    yield case("Split", F, ints(4), since=13)
    for x in (F, some(4, dtype=np.int64)):
        yield case("Gather", x, ints(3, 2, 1, 0))
    yield case("GatherElements", L, L % 4)
    yield case("GatherND", F, ints(3, 2, 1, 0).reshape(4, 1))
    yield case("Scatter", F, L % 4, G, until=10)
    yield case("ScatterElements", F, (L % 4)[:1], G[:1])
    yield case("ScatterElements", F, np.repeat(ints(0, 1, 2, 3)[:, None], 4, 1), G)
    yield case("ScatterElements", D, (L % 4)[:1], D[:1], since=13)
    yield case("ScatterND", F, ints(3, 2, 1, 0).reshape(4, 1), G)
    yield case("TensorScatter", some(1, 4, 4), some(1, 4, 4) + 1)
    yield case("TensorScatter", some(1, 4, 4), some(1, 1, 4), ints(2))
    for x in (F, L):
        yield case("Trilu", x)
    yield case("Compress", F, np.array([True] * 4), axis=0)
    yield case("TopK", F, until=9, outputs=2, k=4)
    yield case("TopK", F, ints(4), since=10, outputs=2)
    yield case("Unique", some(4), outputs=4)
    yield case("NonZero", B)
    for op in ("ArgMax", "ArgMin"):
        yield case(op, F, keepdims=1, axis=0)
    yield case("EyeLike", F)
    yield case("OneHot", ints(0, 1), np.int64(2), np.array([0, 1], np.float32))
    yield case("ReverseSequence", F, ints(4, 4, 4, 4))
    for op in ("DepthToSpace", "SpaceToDepth"):
        yield case(op, IMAGE, blocksize=1)
    for x in (some(2, 3), ints(7)):
        yield case("Shape", x)
    yield case("Size", F)
    yield case("Range", np.int64(0), np.int64(4), np.int64(1))
    yield case("ConstantOfShape", ints(2))
    yield case("ArrayFeatureExtractor", F, ints(0, 1, 2, 3), domain="ai.onnx.ml")


def computing() -> Iterator[Case]:
    for op in REDUCE.split():
        yield case(op, some(4, 1), until=12 if op == "ReduceSum" else 17, axes=[1])
        yield case(op, some(4, 1), ints(1), since=13 if op == "ReduceSum" else 18)
    yield case("Gemm", F, G, F, since=7)
    yield case("Einsum", F, G, equation="ij,jk->ik")
    yield case("MatMulInteger", U, U)
    yield case("ConvInteger", U.reshape(1, 1, 4, 4), U[:1, :1].reshape(1, 1, 1, 1))
    yield case("QLinearMatMul", U, F1, np.uint8(0), U, F1, np.uint8(0), F1, np.uint8(0))
    image = U.reshape(1, 1, 4, 4)
    one = np.ones((1, 1, 1, 1), np.uint8)
    yield case("QLinearConv", image, F1, np.uint8(0), one, F1, np.uint8(0), F1, np.uint8(0))
    yield case("Conv", IMAGE, some(4, 4, 1, 1), C)
    yield case("ConvTranspose", IMAGE, some(4, 4, 1, 1))
    for op in ("AveragePool", "MaxPool", "LpPool"):
        yield case(op, IMAGE, kernel_shape=[1, 1], since=2)
    for op in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"):
        yield case(op, some(1, 4, 1, 1), since=2, until=21 if op == "GlobalLpPool" else 26)
    yield case("LRN", IMAGE, size=3)
    yield case("MeanVarianceNormalization", IMAGE)
    yield case("InstanceNormalization", IMAGE, C, C, since=6)
    yield case("BatchNormalization", IMAGE, C, C + 1, C + 2, C + 3, since=7)
    yield case("BatchNormalization", IMAGE, C, C + 1, C + 2, C + 3, outputs=3, since=14, training_mode=1)
    yield case("GroupNormalization", IMAGE, C, C, num_groups=2, since=21)
    yield case("LayerNormalization", F, C, C)
    yield case("RMSNormalization", F, C)
    yield case("RotaryEmbedding", some(1, 1, 4, 4), some(1, 4, 2), some(1, 4, 2))
    yield case("Attention", some(1, 1, 4, 4), some(1, 1, 4, 4), some(1, 1, 4, 4), since=23)
    past = some(1, 1, 2, 4)
    heads = [some(1, 1, 4, 4)] * 3
    yield case("Attention", *heads, None, past, past, outputs=3, since=23)
    for op, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
        state = [some(1, 1, 4)] * (2 if op == "LSTM" else 1)
        weights = some(1, 4 * gates, 4)
        outputs = 3 if op == "LSTM" else 2
        yield case(op, some(1, 1, 4), weights, weights, None, None, *state, since=7, outputs=outputs, hidden_size=4)


def sampling() -> Iterator[Case]:
    """What moves over places, boxes and frequencies, and the models of ai.onnx.ml."""
    scales = np.array([1, 1, 2, 0.5], np.float32)
    for mode in ("nearest", "linear"):
        yield case("Resize", IMAGE, None, scales, since=13, mode=mode)
    yield case("Upsample", IMAGE, np.ones(4, np.float32), since=9, until=9)
    yield case("GridSample", IMAGE, some(1, 4, 4, 2), since=16)
    yield case("AffineGrid", some(1, 2, 3), ints(1, 1, 2, 2), since=20)
    yield case("DFT", some(1, 4, 2), since=17)
    yield case("STFT", some(1, 8, 1), np.int64(2), some(4), since=17)
    yield case("NonMaxSuppression", some(1, 4, 4), some(1, 1, 4), ints(3), since=10)
    grams: dict[str, Any] = {"ngram_counts": [0], "ngram_indexes": [0, 1], "pool_int64s": [1, 2], "mode": "TF"}
    yield case("TfIdfVectorizer", L, min_gram_length=1, max_gram_length=1, max_skip_count=0, **grams)
    ml: dict[str, Any] = {"domain": "ai.onnx.ml", "since": 21}
    numbers = [0.5, 0.25, 1.0, 2.0]
    yield case("LinearRegressor", F, coefficients=numbers * 4, targets=4, **ml)
    told: dict[str, Any] = {"coefficients": numbers * 4, "intercepts": numbers, "classlabels_ints": [1, 2, 3, 4]}
    yield case("LinearClassifier", F, outputs=2, **told, **ml)
    yield case("Normalizer", F, norm="L2", **ml)
    yield case("Scaler", F, offset=[0.5], scale=[2.0], **ml)


def microsoft() -> Iterator[Case]:
    for op in ("Gelu", "QuickGelu", "FastGelu", "Trilu"):
        yield case(op, F, **MS)
    for op in ("FastGelu", "BiasGelu"):
        yield case(op, F, C, **MS)
    for op in ("FusedMatMul", "TransposeMatMul"):
        yield case(op, F, G, **MS)
    yield case("SimplifiedLayerNormalization", F, C, since=21)
    row = some(1, 4, 4)
    for op, more in (("SkipLayerNormalization", (C, C)), ("SkipSimplifiedLayerNormalization", (C,))):
        for outputs in (1, 4):
            yield case(op, row, row + 1, *more, outputs=outputs, **MS)
    yield case("QuantizeLinear", F, F1, np.int8(0), **MS)
    yield case("DequantizeLinear", U, F1, np.uint8(0), **MS)
    yield case("DynamicQuantizeMatMul", F, U, np.array([1], np.float32), **MS)
    yield case("MatMulIntegerToFloat", U, U, F1, F1, **MS)
    table = np.zeros((16, 1, 8), np.uint8)
    nbits: dict[str, Any] = {"K": 16, "N": 16, "block_size": 16, "bits": 4}
    yield case("MatMulNBits", some(4, 16), table, some(16, 1), fixed=(1, 2), **MS, **nbits)
    rows = np.zeros((4, 16), np.uint8)
    quantized: dict[str, Any] = {"block_size": 16, "quantize_axis": 1, "gather_axis": 0, "bits": 8}
    yield case("GatherBlockQuantized", rows, ints(0, 1, 2, 3), some(4, 1), **MS, **quantized)
    yield case("RotaryEmbedding", some(1, 1, 4, 4), ints(0), some(4, 2), some(4, 2), **MS)
    wide = some(1, 4, 8)
    yield case("MultiHeadAttention", wide, wide, wide, num_heads=2, **MS)
    past = some(1, 2, 4, 4)
    absent = (None, None, None)
    yield case("MultiHeadAttention", wide, wide, wide, *absent, past, past, num_heads=2, outputs=3, **MS)
    shared = [some(1, 1, 8)] * 3
    length = np.array([1], np.int32)
    yield case("MultiHeadAttention", *shared, *absent, past, past, length, num_heads=2, outputs=3, **MS)
    yield case("Attention", wide, some(8, 24), some(24), num_heads=2, **MS)
    both = some(2, 1, 2, 4, 4)
    options: dict[str, Any] = {"num_heads": 2, "outputs": 2, "unidirectional": 1}
    yield case("Attention", wide, some(8, 24), some(24), None, both, **options, **MS)
    query = some(1, 1, 16)
    cache = some(1, 1, 4, 8)
    new = some(1, 1, 8)
    for total in (4, 5):
        told = (np.array([total - 1], np.int32), np.array(total, np.int32))
        yield case(
            "GroupQueryAttention", query, new, new, cache, cache, *told,
            num_heads=2, kv_num_heads=1, outputs=3, **MS,
        )  # fmt: skip
    gates, scale, zero = np.ones((1, 4, 16), np.uint8), some(1), np.zeros(1, np.uint8)
    lstm = (some(2, 1, 4), gates, gates, *[None] * 5, scale, zero, scale, zero)
    weights = (1, 2, 8, 9, 10, 11)
    yield case("DynamicQuantizeLSTM", *lstm, fixed=weights, outputs=3, hidden_size=4, **MS)
    rule: dict[str, Any] = {"q_num_heads": 2, "kv_num_heads": 2, "update_rule": "linear"}
    yield case("LinearAttention", wide, wide, wide, past, outputs=2, **MS, **rule)
    columns = some(1, 4, 8)
    yield case("CausalConvWithState", columns, some(4, 1, 3), None, some(1, 4, 2), outputs=2, **MS)


def fused() -> Iterator[Case]:
    """What onnxruntime's optimiser makes of several ops, and its ops of quantized models."""
    one = some(4, 4, 1, 1)
    for more in ((), (IMAGE + 1,)):
        yield case("FusedConv", IMAGE, one, C, *more, activation="Relu", **MS)
    yield case("FusedGemm", F, G, F, activation="Relu", **MS)
    words = np.array([[0, 1, 2, 3]], np.int32)
    embeddings = (words, words, some(4, 8), some(4, 8), some(4, 8), some(8), some(8), words)
    for outputs in (2, 3):
        yield case("EmbedLayerNormalization", *embeddings, outputs=outputs, **MS)
    u0 = np.uint8(0)
    for op in ("QLinearAdd", "QLinearMul"):
        yield case(op, U, F1, u0, U, F1, u0, F1, u0, **MS)
    for op in ("QLinearSigmoid", "QLinearLeakyRelu"):
        yield case(op, U, F1, u0, F1, u0, fixed=(1, 2, 3, 4), **MS)
    yield case("QLinearSoftmax", U, F1, u0, F1, u0, fixed=(1, 2, 3, 4), axis=-1, opset=13, **MS)
    yield case("QLinearConcat", F1, u0, U, F1, u0, fixed=(0, 1, 3, 4), axis=0, **MS)
    yield case("QLinearWhere", B, U, F1, u0, U, F1, u0, F1, u0, fixed=(2, 3, 5, 6, 7, 8), **MS)
    image = U.reshape(1, 1, 4, 4)
    yield case("QLinearAveragePool", image, F1, u0, F1, u0, kernel_shape=[1, 1], **MS)
    yield case("QLinearGlobalAveragePool", image[:, :, :1, :1], F1, u0, F1, u0, **MS)
    yield case("QLinearConv", image, F1, u0, np.ones((1, 1, 1, 1), np.uint8), F1, u0, F1, u0, **MS)
    for end in ((), (None, F1, u0)):
        yield case("QGemm", U, F1, u0, U, F1, u0, *end, fixed=(3, 4, 5), **MS)
    wide = some(1, 4, 8)
    quantized = (wide.astype(np.uint8), np.ones((8, 24), np.uint8), some(24), F1, F1, None, u0, u0)
    yield case("QAttention", *quantized, num_heads=2, fixed=(1,), **MS)
    yield case("NhwcMaxPool", U.reshape(1, 4, 4, 1), kernel_shape=[1, 1], **MS)
    yield case("GatherND", F, ints(3, 2, 1, 0).reshape(4, 1), **MS)
    yield case("GridSample", IMAGE, some(1, 4, 4, 2), **MS)
    yield case("Inverse", F + np.eye(4, dtype=np.float32), **MS)
    yield case("Unique", some(4), outputs=3, **MS)
    yield case("Pad", F, ints(0, 0, 0, 0), **MS)
    yield case("ExpandDims", F, np.array(0, np.int32), **MS)
    yield case("Range", np.float32(0), np.float32(4), F1, **MS)
    yield case("MatMulInteger16", some(4, 4, dtype=np.int16), some(4, 4, dtype=np.int16), **MS)
    yield case("ConvTransposeWithDynamicPads", IMAGE, one, ints(0, 0, 0, 0), **MS)
    yield case("MaxpoolWithMask", IMAGE, np.ones((1, 4, 4, 4), np.int32), kernel_shape=[1, 1], **MS)
    yield case("ScaledSiLU", F, **MS)
    yield case("GatedAdd", F, F, F[:, :1], **MS)
    yield case("GatedRMSNorm", F, C, F, **MS)
    yield case("BranchwiseRMSNorm", some(1, 4, 4), C, **MS)
    yield case("CDist", F, F, metric="euclidean", **MS)
    yield case("MurmurHash3", some(4, dtype=np.int32), **MS)
    yield case("UnfoldTensor", F, dim=-1, size=1, step=1, **MS)
    row, past, length = some(1, 1, 8), some(1, 2, 8, 4), np.array([3], np.int32)
    shared: dict[str, Any] = {"num_heads": 2, "outputs": 3, "past_present_share_buffer": 1}
    absent = (None, None, None)
    yield case(
        "DecoderMaskedMultiHeadAttention", row, row, row, None, None, past, past, length, *absent, **shared, **MS
    )


def blocked() -> Iterator[Case]:
    """The channel-blocked layout of convolutions; 16 channels are whole blocks on every machine."""
    chunk: dict[str, Any] = {"domain": "com.microsoft.nchwc", "since": 21}
    x, weight, bias = some(1, 16, 4, 4), some(16, 16, 1, 1), some(16)
    fused: tuple[dict[str, Any], ...] = ({}, {"activation": "Relu"})
    for activation in fused:
        yield case("Conv", x, weight, bias, **activation, **chunk)
        yield case("Conv", x, weight, None, x + 1, **activation, **chunk)
    for op in ("MaxPool", "AveragePool"):
        yield case(op, x, kernel_shape=[1, 1], **chunk)
    for op in ("GlobalMaxPool", "GlobalAveragePool"):
        yield case(op, x[:, :, :1, :1], **chunk)
    yield case("ReorderInput", x, **chunk)
    yield case("ReorderInput", x.transpose(0, 2, 3, 1), channels_last=1, **chunk)
    yield case("ReorderOutput", x, channels=16, **chunk)
    yield case("Upsample", x, scales=[1, 1, 1, 1], **chunk)


CASES = [*elementwise(), *moving(), *computing(), *sampling(), *microsoft(), *fused(), *blocked()]
