"""Real ggml through ctypes, under the names of `kvviz.ggml.Context`: it runs the cases of `op_cases`, and records them.

    KVVIZ_GGML=folder/of/libggml python -m tests.ggml.real_ggml     writes tests/data/ggml/op_cases.json

The numbers of types are those of ggml 0.25.3. On x86-64 an argument of any integer type may be given as 64 bits.
"""

import ctypes as C
import json
import os
from base64 import b64encode
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from kvviz.ggml.graph.context import PREC_F32
from kvviz.ggml.graph.tensor import GLU, UNARY
from kvviz.ggml.graph.tensor_data import to_type
from kvviz.ggml.recording.llama_recorder import InitParams, TensorStruct
from tests.ggml.op_cases import CASES, quants
from tests.ggml.recordings import DATA

TYPES = {"f32": 0, "f16": 1, "q8_0": 8, "i32": 26, "i64": 27, "bf16": 30}
TYPE_NAMES = {number: name for name, number in TYPES.items()}


@cache
def libraries() -> list[C.CDLL]:
    folder = Path(os.environ["KVVIZ_GGML"])
    return [C.CDLL(str(folder / f"lib{name}.so"), mode=C.RTLD_GLOBAL) for name in ("ggml-base", "ggml-cpu", "ggml")]


def call(name: str, *values: Any, result: Any = C.c_void_p) -> Any:
    """Call a function of ggml; a type is given by its name."""
    function = next(found for library in libraries() if (found := getattr(library, f"ggml_{name}", None)))
    function.restype = result
    given = [TYPES[value] if isinstance(value, str) else value for value in values]
    kinds = {int: C.c_int64, bool: C.c_int64, float: C.c_float}
    return function(*(kinds[type(value)](value) if type(value) in kinds else value for value in given))


class RealContext:
    """A ``ggml_context``; tensors are addresses."""

    def __init__(self) -> None:
        self.context = call("init", InitParams(1 << 24, None, False))

    def new_tensor(self, type_: str, *ne: int, name: str = "", data: Any = 0) -> int:
        made: int = call("new_tensor", self.context, type_, len(ne), (C.c_int64 * len(ne))(*ne))
        self.set_name(made, name)
        given = np.asarray(data, np.float64 if type_ == "i64" else np.float32)
        full = np.broadcast_to(given.reshape(-1), int(np.prod(ne))) if given.size == 1 else given
        raw = to_type(np.ascontiguousarray(full).reshape(ne[::-1]), type_).tobytes()
        C.memmove(TensorStruct.from_address(made).data, raw, len(raw))
        return made

    def set_name(self, tensor: int, name: str) -> int:
        call("set_name", tensor, name.encode())
        return tensor

    def unary(self, a: int, kind: str) -> Any:
        return call("unary", self.context, a, UNARY.index(kind))

    def glu(self, a: int, kind: str, swapped: bool) -> Any:
        return call("glu", self.context, a, GLU.index(kind), swapped)

    def mul_mat_set_prec(self, a: int) -> int:
        call("mul_mat_set_prec", a, PREC_F32, result=None)
        return a

    def __getattr__(self, name: str) -> Any:
        return lambda *values: call(name, self.context, *values)

    def run(self, outputs: list[int]) -> list[dict[str, Any]]:
        """Expand tensors, run the graph, and say what each node is and holds, its bytes from the first to the last."""
        graph = call("new_graph", self.context)
        for output in outputs:
            call("build_forward_expand", graph, output, result=None)
        nodes = [call("graph_node", graph, i) for i in range(call("graph_n_nodes", graph, result=C.c_int))]
        assert call("graph_compute_with_ctx", self.context, graph, 1, result=C.c_int) == 0
        told = [_told(node, {node: i for i, node in enumerate(nodes)}) for node in nodes]
        call("free", self.context, result=None)
        return told


def _told(node: int, places: dict[int, int]) -> dict[str, Any]:
    raw = TensorStruct.from_address(node)
    op = call("op_name", raw.op, result=C.c_char_p).decode()

    def named(address: int | None) -> Any:
        other = address and TensorStruct.from_address(address)
        return None if not other else places.get(address or 0, other.name.decode(errors="ignore"))

    return {
        "name": raw.name.decode(errors="ignore"),
        "op": op,
        "desc": call("op_desc", node, result=C.c_char_p).decode() if op in ("UNARY", "GLU") else "",
        "type": TYPE_NAMES[raw.type],
        **{key: list(getattr(raw, key)) for key in ("ne", "nb")},
        "flags": raw.flags,
        "op_params": list(raw.op_params),
        "src": [named(source) for source in raw.src if source],
        "view_src": named(raw.view_src),
        "view_offs": raw.view_offs,
        "bytes": b64encode(C.string_at(raw.data, call("nbytes", node, result=C.c_size_t))).decode(),
    }


def quantised(floats: np.ndarray) -> bytes:
    """Blocks of q8_0 as ggml's reference makes them, which model files are made with."""
    made = C.create_string_buffer(floats.size // 32 * 34)
    call("quantize_chunk", "q8_0", floats.ctypes.data, made, 0, 1, floats.size, None, result=C.c_size_t)
    return made.raw


if __name__ == "__main__":
    nodes = {}
    for name, case in CASES.items():
        context = RealContext()
        nodes[name] = context.run(case(context))
    version = call("version", result=C.c_char_p).decode()
    lines = [f"{json.dumps(name)}:{json.dumps(told, separators=(',', ':'))}" for name, told in nodes.items()]
    blocks = b64encode(quantised(quants())).decode()
    text = f'{{"ggml":{json.dumps(version)},\n"q8_0":"{blocks}",\n"cases":{{\n' + ",\n".join(lines) + "\n}}\n"
    (DATA / "op_cases.json").write_text(text, "utf-8")
