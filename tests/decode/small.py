"""Decoders of one layer, one for each way to keep a cache. All have the same weights."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import onnx

from tests.graph.build import graph, model, node

VOCABULARY, HEADS, SIZE, ROWS, WINDOW = 24, 2, 16, 24, 6
WIDTH = HEADS * SIZE
MS = "com.microsoft"
Feeds = dict[str, Any]


@dataclass(frozen=True)
class Small:
    """A decoder, and how to drive it without kvviz: what its caches are found to be, their outputs by input, their rows
    at the start, the other inputs (``controls(past, new)``), and options of `kvviz.decode`."""

    proto: onnx.ModelProto
    protocol: str
    caches: dict[str, str]
    rows: int
    controls: Callable[[int, int], Feeds]
    options: Feeds = field(default_factory=dict)


def weights() -> Feeds:
    """The same numbers for every decoder, so that all of them tell the same tokens where they see the same rows."""
    rng = np.random.default_rng(7)

    def made(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)

    names = {"E": (VOCABULARY, WIDTH), "P": (64, WIDTH)} | {f"W{c}": (WIDTH, WIDTH) for c in "qkvo"}
    arrays: Feeds = {name: made(*shape) * (6 if name in "EP" else 2) for name, shape in names.items()}
    constants = {
        "heads": np.array([0, 0, HEADS, SIZE]),
        "flat": np.array([0, 0, WIDTH]),
        "scale": np.float32(SIZE**-0.5),
        "zero": np.int64(0),
        "one": np.int64(1),
        "two": np.array([2]),
        "last": np.array([-1]),
        "nothing": np.float32(0),
        "hide": np.float32(-1e9),
    }
    return {**arrays, "Wl": made(WIDTH, VOCABULARY) * 3, **constants}


def projected(tokens: Sequence[int], weight: str) -> np.ndarray:
    """Queries, keys or values of tokens at their places, ``(tokens, heads, size)``, straight from the weights."""
    w = weights()
    rows = (w["E"][list(tokens)] + w["P"][: len(tokens)]) @ w[weight]
    return np.asarray(rows.reshape(len(tokens), HEADS, SIZE))


def before() -> list[Any]:
    """Tokens to queries, keys and values: ``q3`` … as (batch, length, width) and ``q`` … by head."""
    nodes = [node("Gather", "E input_ids", "e"), node("Gather", "P cache_position", "p"), node("Add", "e p", "x")]
    for c in "qkv":
        nodes += [
            node("MatMul", f"x W{c}", f"{c}3"),
            node("Reshape", f"{c}3 heads", f"{c}r"),
            node("Transpose", f"{c}r", c, perm=[0, 2, 1, 3]),
        ]
    return nodes


def after() -> list[Any]:
    """What attention gave, ``y3``, to logits."""
    return [node("MatMul", "y3 Wo", "o"), node("Add", "o x", "h"), node("MatMul", "h Wl", "logits")]


BACK = [node("Transpose", "y", "yt", perm=[0, 2, 1, 3]), node("Reshape", "yt flat", "y3")]
"""Results by head to those of ``after``."""


def attend(key: str = "present.0.key", value: str = "present.0.value", bias: str = "bias") -> list[Any]:
    """Attention of plain ops, with a bias added to the scores."""
    return [
        node("Transpose", key, "kt", perm=[0, 1, 3, 2]),
        node("MatMul", "q kt", "raw"),
        node("Mul", "raw scale", "scaled"),
        node("Add", f"scaled {bias}", "scores"),
        node("Softmax", "scores", "weights", axis=-1),
        node("MatMul", f"weights {value}", "y"),
        *BACK,
    ]


def causal(key: str = "present.0.key") -> list[Any]:
    """A bias that hides the rows after each query's position, and so all that a static cache does not hold yet."""
    return [
        node("Shape", key, "kshape"),
        node("Gather", "kshape two", "klength"),
        node("Squeeze", "klength", "kcount"),
        node("Range", "zero kcount one", "places"),
        node("Unsqueeze", "cache_position last", "positions"),
        node("LessOrEqual", "places positions", "seen"),
        node("Where", "seen nothing hide", "bias"),
    ]


def decoder(
    middle: Sequence[Any],
    rows: str | int,
    *,
    controls: Sequence[str] = (),
    opset: int = 18,
    batch: str = "batch",
    **more: Any,
) -> onnx.ModelProto:
    """A model around the nodes that keep the cache."""
    shape = f"{batch} {HEADS} {rows} {SIZE}"
    grown = f"{batch} {HEADS} {rows if isinstance(rows, int) else 'total'} {SIZE}"
    inputs = [f"input_ids int64 {batch} length", "cache_position int64 length", *controls]
    inputs += [f"{past} float {shape}" for past in NAMES]
    outputs = [f"logits float {batch} length {VOCABULARY}"]
    outputs += [f"{present} float {grown}" for present in NAMES.values()]
    return model([*before(), *middle, *after()], inputs, outputs, opset=opset, domains=[MS], **{**weights(), **more})


def each(text: str, op: str, **attributes: Any) -> list[Any]:
    """One op for keys and one for values: ``{0}`` is the kind, ``{1}`` the letter of what is new."""
    made = []
    for kind in ("key", "value"):
        inputs, outputs = (part.format(kind, kind[0]) for part in text.split("->"))
        made.append(node(op, inputs, outputs, **attributes))
    return made


NAMES = {f"past_key_values.0.{kind}": f"present.0.{kind}" for kind in ("key", "value")}


def filled(rows: int, held: int | list[int] = 0) -> Feeds:
    """Caches whose first rows hold ones, as many for each sequence, and the others nothing."""
    row = np.arange(rows)[:, None] < np.reshape(held, (-1, 1, 1, 1))
    return {name: np.broadcast_to(row, (len(row), HEADS, rows, SIZE)).astype(np.float32) for name in NAMES}


CONCAT = "past_key_values.0.{0} {1} -> present.0.{0}"


def positions(past: int, new: int) -> Feeds:
    return {"cache_position": np.arange(past, past + new)}


def _small(proto: Any, protocol: str, rows: int, controls: Any = positions, **options: Any) -> Small:
    return Small(proto, protocol, NAMES, rows, controls, options)


def concat() -> Small:
    return _small(decoder([*each(CONCAT, "Concat", axis=2), *causal(), *attend()], "past"), "growing", 0)


def merged() -> Small:
    """One If: the cached branch appends, the other gives what it computed."""
    names = [f"present.0.{kind}" for kind in ("key", "value")]
    cached = graph(each("past_key_values.0.{0} {1} -> c{0}", "Concat", axis=2), [], ["ckey", "cvalue"])
    fresh = graph(each("{1} -> f{0}", "Identity"), [], ["fkey", "fvalue"])
    choose = node("If", "use_cache_branch", " ".join(names), name="choose", then_branch=cached, else_branch=fresh)
    proto = decoder([choose, *causal(), *attend()], "past", controls=["use_cache_branch bool 1"])

    def controls(past: int, new: int) -> Feeds:
        return {**positions(past, new), "use_cache_branch": np.array([past > 0])}

    return _small(proto, "growing", 0, controls)


def scatter_nd() -> Small:
    """Rows first, written by their numbers, and turned back, as torch exports index_copy."""
    turn = [2, 0, 1, 3]
    nodes = [node("Unsqueeze", "cache_position last", "at")]
    nodes += each("past_key_values.0.{0} -> front{0}", "Transpose", perm=turn)
    nodes += each("{1} -> new{0}", "Transpose", perm=turn)
    nodes += each("front{0} at new{0} -> written{0}", "ScatterND")
    nodes += each("written{0} -> present.0.{0}", "Transpose", perm=[1, 2, 0, 3])
    return _small(decoder([*nodes, *causal(), *attend()], ROWS), "static", ROWS)


def scatter_elements(bias: Sequence[Any] | None = None, attention: Sequence[Any] | None = None, **more: Any) -> Small:
    """ScatterElements into a static cache, and attention of other nodes where some are given."""
    nodes = [
        node("Reshape", "cache_position column", "rows4"),
        node("Shape", "k", "newshape"),
        node("Expand", "rows4 newshape", "at"),
        *each("past_key_values.0.{0} at {1} -> present.0.{0}", "ScatterElements", axis=2),
        *(causal() if bias is None else bias),
        *(attend() if attention is None else attention),
    ]
    return _small(decoder(nodes, ROWS, column=np.array([1, 1, -1, 1]), **more), "static", ROWS)


COUNTED = "q present.0.key present.0.value - - - nonpad_kv_seqlen"


def tensor_scatter(
    mode: str = "linear",
    rows: int = ROWS,
    count: Sequence[Any] = (),
    at: str = "write_indices",
    outputs: str = "y",
    **attributes: Any,
) -> Small:
    """TensorScatter and Attention-24, whose count of valid rows is an input, or made by the nodes ``count``."""
    nodes = each(f"past_key_values.0.{{0}} {{1}} {at} -> present.0.{{0}}", "TensorScatter", axis=2, mode=mode)
    nodes += [*count, node("Attention", COUNTED, outputs, is_causal=1, **attributes), *BACK]
    given = ["write_indices int64 batch", *([] if count else ["nonpad_kv_seqlen int64 batch"])]

    def controls(past: int, new: int) -> Feeds:
        valid = {} if count else {"nonpad_kv_seqlen": np.array([min(past + new, rows)])}
        return {**positions(past, new), "write_indices": np.array([past]), **valid}

    proto = decoder(nodes, rows, controls=given, opset=24)
    return _small(proto, "window" if mode == "circular" else "static", rows, controls)


def circular() -> Small:
    return tensor_scatter("circular", WINDOW)


def attention() -> Small:
    inputs = "q k v - past_key_values.0.key past_key_values.0.value"
    nodes = [node("Attention", inputs, "y present.0.key present.0.value", is_causal=1), *BACK]
    return _small(decoder(nodes, "past", opset=24), "growing", 0)


def grouped(rows: int = 0, **attributes: Any) -> Small:
    """GroupQueryAttention; the same graph takes a growing past and a buffer of full capacity."""
    inputs = "q3 k3 v3 past_key_values.0.key past_key_values.0.value seqlens_k total_sequence_length"
    how: Feeds = {"domain": MS, "name": "attention", "num_heads": HEADS, "kv_num_heads": HEADS, **attributes}
    nodes = [node("GroupQueryAttention", inputs, "y3 present.0.key present.0.value", **how)]
    given = ["seqlens_k int32 batch", "total_sequence_length int32 -"]

    def controls(past: int, new: int) -> Feeds:
        count = past + new
        last = {"seqlens_k": np.array([count - 1], np.int32), "total_sequence_length": np.array(count, np.int32)}
        return {**positions(past, new), **last}

    protocol = "window" if attributes.get("sliding_window_cache") else "growing"
    return _small(decoder(nodes, "past", controls=given), protocol, rows, controls)


def grouped_shared() -> Small:
    small = grouped(ROWS)
    return Small(small.proto, "growing", NAMES, ROWS, small.controls, {"cache": "shared", "kv_capacity": ROWS})


def grouped_window() -> Small:
    small = grouped(WINDOW + 2, sliding_window_cache=1, local_window_size=WINDOW)
    return Small(small.proto, "window", NAMES, WINDOW + 2, small.controls, {"kv_capacity": WINDOW + 2})


def multi_head(shared: bool = False) -> Small:
    inputs = "q3 k3 v3 - - - past_key_values.0.key past_key_values.0.value" + shared * " past_sequence_length"
    how: Feeds = {"domain": MS, "num_heads": HEADS, "unidirectional": 1}
    nodes = [node("MultiHeadAttention", inputs, "y3 present.0.key present.0.value", **how)]

    def controls(past: int, new: int) -> Feeds:
        length = {"past_sequence_length": np.array([past], np.int32)} if shared else {}
        return {**positions(past, new), **length}

    proto = decoder(nodes, ROWS if shared else "past", controls=["past_sequence_length int32 1"] if shared else [])
    return _small(proto, "static" if shared else "growing", ROWS if shared else 0, controls)


def window() -> Small:
    """The last rows of past and new together are kept; queries see as many rows, their own included."""
    return _small(decoder([*_slid(), *_near(), *attend("allkey", "allvalue")], "past", **_ends()), "window", 0)


def window_fixed() -> Small:
    """The same in a cache that has all of its rows from the start; those in front of the first token are hidden."""
    started = [
        node("Gather", "cache_position minus", "newest"),
        node("Sub", "newest acount", "behind"),
        node("Add", "behind one", "oldest"),
        node("Add", "oldest places", "tokens"),
        node("GreaterOrEqual", "tokens zero", "written"),
        node("And", "seen written", "allowed"),
        node("Where", "allowed nothing hide", "both"),
    ]
    nodes = [*_slid(), *_near(), *started, *attend("allkey", "allvalue", "both")]
    return _small(decoder(nodes, WINDOW, minus=np.int64(-1), **_ends()), "window", WINDOW)


def _slid() -> list[Any]:
    return [
        *each("past_key_values.0.{0} {1} -> all{0}", "Concat", axis=2),
        *each("all{0} start end rowaxis -> present.0.{0}", "Slice"),
    ]


def _near() -> list[Any]:
    """A bias that hides rows after a query's own, and those too far before it."""
    return [
        node("Shape", "past_key_values.0.key", "pshape"),
        node("Gather", "pshape two", "plength"),
        node("Shape", "allkey", "ashape"),
        node("Gather", "ashape two", "alength"),
        node("Squeeze", "alength", "acount"),
        node("Squeeze", "plength", "pcount"),
        node("Range", "zero acount one", "places"),
        node("Range", "pcount acount one", "own"),
        node("Unsqueeze", "own last", "owncolumn"),
        node("Sub", "owncolumn places", "distance"),
        node("GreaterOrEqual", "distance zero", "earlier"),
        node("Less", "distance size", "near"),
        node("And", "earlier near", "seen"),
        node("Where", "seen nothing hide", "bias"),
    ]


def _ends() -> Feeds:
    ends: Feeds = {"start": np.array([-WINDOW]), "end": np.array([1 << 30]), "rowaxis": np.array([2])}
    return {**ends, "size": np.int64(WINDOW)}


def gathered() -> Small:
    """Beams change places in the past before it is appended to."""
    nodes = each("past_key_values.0.{0} beam_idx -> sorted{0}", "Gather", axis=0)
    nodes += each("sorted{0} {1} -> present.0.{0}", "Concat", axis=2)
    proto = decoder([*nodes, *causal(), *attend()], "past", controls=["beam_idx int64 batch"])
    return _small(proto, "growing", 0)


DECODERS: dict[str, Callable[[], Small]] = {
    "concat": concat,
    "merged": merged,
    "scatter_nd": scatter_nd,
    "scatter_elements": scatter_elements,
    "tensor_scatter": tensor_scatter,
    "circular": circular,
    "attention": attention,
    "grouped": grouped,
    "grouped_shared": grouped_shared,
    "grouped_window": grouped_window,
    "multi_head": multi_head,
    "multi_head_shared": lambda: multi_head(shared=True),
    "window": window,
    "window_fixed": window_fixed,
}


@cache
def small(name: str) -> Small:
    """A decoder by name."""
    return DECODERS[name]()
