"""Real ggml through ctypes, under the names of `kvviz.ggml.Context`: it runs the same cases, and records them.

    KVVIZ_GGML=folder/of/libggml python -m tests.ggml.real_ggml     writes tests/data/ggml/op_cases.json

Without that folder the libraries of an installed llama-cpp-python are taken. The layout of ``struct ggml_tensor`` and
the numbers of types are those of ggml 0.25.3.
"""

import ctypes as C
import json
import os
from base64 import b64encode
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from kvviz.ggml.graph.tensor import GLU, UNARY
from kvviz.ggml.graph.tensor_data import to_type

P, I32, I64, SIZE, F32 = C.c_void_p, C.c_int, C.c_int64, C.c_size_t, C.c_float
TYPES = {"f32": 0, "f16": 1, "q8_0": 8, "i32": 26, "i64": 27, "bf16": 30}
TYPE_NAMES = {number: name for name, number in TYPES.items()}

# Arguments of each function behind the context, a letter each: t tensor, n size, s bytes, i int, f float, y type.
_ARGUMENTS = {
    "t": "dup cont transpose sqr sqrt log sin cos sqrt_inplace sum sum_rows mean argmax soft_max soft_max_inplace "
    "reglu geglu swiglu geglu_erf geglu_quick",
    "tt": "add sub mul div add_inplace sub_inplace mul_inplace div_inplace add1 cpy repeat get_rows mul_mat "
    "reglu_split geglu_split swiglu_split",
    "ttt": "set_rows",
    "tns": "view_1d",
    "tnnss": "view_2d",
    "tnnnsss": "view_3d",
    "tnn": "reshape_2d cont_2d",
    "tnnnn": "repeat_4d",
    "tiiii": "permute",
    "ty": "cast",
    "tti": "concat",
    "ttssss": "set acc set_inplace acc_inplace",
    "tts": "set_1d",
    "ttss": "set_2d_inplace",
    "tf": "fill fill_inplace scale scale_inplace norm rms_norm rms_norm_inplace",
    "tff": "scale_bias clamp",
    "ttff": "soft_max_ext",
    "ti": "diag_mask_inf diag_mask_inf_inplace diag_mask_zero",
    "ttii": "rope",
    "tttiiiffffff": "rope_ext",
    "ttttfff": "flash_attn_ext",
}
_LETTERS = {"t": P, "n": I64, "s": SIZE, "i": I32, "f": F32, "y": I32}
SIGNATURES = {name: [_LETTERS[one] for one in kinds] for kinds, all_ in _ARGUMENTS.items() for name in all_.split()}


class RawTensor(C.Structure):
    """``struct ggml_tensor`` (64 bit)."""

    _fields_ = (
        ("type", C.c_int),
        ("buffer", P),
        ("ne", I64 * 4),
        ("nb", SIZE * 4),
        ("op", C.c_int),
        ("op_params", C.c_int32 * 16),
        ("flags", C.c_int32),
        ("src", P * 10),
        ("view_src", P),
        ("view_offs", SIZE),
        ("data", P),
        ("name", C.c_char * 64),
        ("extra", P),
        ("padding", C.c_char * 8),
    )


class _Init(C.Structure):
    _fields_ = (("mem_size", SIZE), ("mem_buffer", P), ("no_alloc", C.c_bool))


def folder() -> Path | None:
    """Where the libraries lie, if anywhere."""
    if os.environ.get("KVVIZ_GGML"):
        return Path(os.environ["KVVIZ_GGML"])
    found = find_spec("llama_cpp")
    return None if found is None or found.origin is None else Path(found.origin).parent / "lib"


@cache
def libraries() -> list[C.CDLL]:
    """ggml-base, ggml-cpu, ggml."""
    place = folder()
    assert place is not None
    return [C.CDLL(str(place / f"lib{name}.so"), mode=C.RTLD_GLOBAL) for name in ("ggml-base", "ggml-cpu", "ggml")]


def call(name: str, result: Any, arguments: list[Any], *values: Any) -> Any:
    """Call a function of ggml."""
    for library in libraries():
        function = getattr(library, f"ggml_{name}", None)
        if function is not None:
            function.restype, function.argtypes = result, arguments
            return function(*values)
    raise AttributeError(name)


class RealContext:
    """A ``ggml_context``; tensors are addresses."""

    def __init__(self) -> None:
        self.context = call("init", P, [_Init], _Init(1 << 24, None, False))

    def new_tensor(self, type_: str, *ne: int, name: str = "", data: Any = 0) -> int:
        made: int = call(
            "new_tensor", P, [P, I32, I32, C.POINTER(I64)], self.context, TYPES[type_], len(ne), (I64 * len(ne))(*ne)
        )
        self.set_name(made, name)
        given = np.asarray(data, np.float64 if type_ == "i64" else np.float32)
        full = np.broadcast_to(given.reshape(-1), int(np.prod(ne))) if given.size == 1 else given.reshape(ne[::-1])
        raw = to_type(np.ascontiguousarray(full).reshape(ne[::-1]), type_).tobytes()
        C.memmove(RawTensor.from_address(made).data, raw, len(raw))
        return made

    def set_name(self, tensor: int, name: str) -> int:
        call("set_name", P, [P, C.c_char_p], tensor, name.encode())
        return tensor

    def unary(self, a: int, kind: str) -> Any:
        return call("unary", P, [P, P, I32], self.context, a, UNARY.index(kind))

    def glu(self, a: int, kind: str, swapped: bool) -> Any:
        return call("glu", P, [P, P, I32, C.c_bool], self.context, a, GLU.index(kind), swapped)

    def mul_mat_set_prec(self, a: int) -> int:
        call("mul_mat_set_prec", None, [P, I32], a, 10)
        return a

    def __getattr__(self, name: str) -> Any:
        arguments = SIGNATURES[name]

        def function(*values: Any) -> Any:
            given = [TYPES[value] if isinstance(value, str) else value for value in values]
            return call(name, P, [P, *arguments], self.context, *given)

        return function

    def run(self, outputs: list[int]) -> list[dict[str, Any]]:
        """Expand tensors, run the graph, and say what each node is and holds."""
        graph = call("new_graph", P, [P], self.context)
        for output in outputs:
            call("build_forward_expand", None, [P, P], graph, output)
        nodes = [call("graph_node", P, [P, I32], graph, i) for i in range(call("graph_n_nodes", I32, [P], graph))]
        assert call("graph_compute_with_ctx", I32, [P, P, I32], self.context, graph, 1) == 0
        told = [_told(node, {node: i for i, node in enumerate(nodes)}) for node in nodes]
        call("free", None, [P], self.context)
        return told


def _told(node: int, places: dict[int, int]) -> dict[str, Any]:
    """A node as the tests compare it; its bytes from its first to its last."""
    raw = RawTensor.from_address(node)
    op = call("op_name", C.c_char_p, [I32], raw.op).decode()

    def named(address: int | None) -> Any:
        other = address and RawTensor.from_address(address)
        return None if not other else places.get(address or 0, other.name.decode(errors="ignore"))

    return {
        "name": raw.name.decode(errors="ignore"),
        "op": op,
        "desc": call("op_desc", C.c_char_p, [P], node).decode() if op in ("UNARY", "GLU") else "",
        "type": TYPE_NAMES[raw.type],
        "ne": list(raw.ne),
        "nb": list(raw.nb),
        "flags": raw.flags,
        "op_params": list(raw.op_params),
        "src": [named(source) for source in raw.src if source],
        "view_src": named(raw.view_src),
        "view_offs": raw.view_offs,
        "bytes": b64encode(C.string_at(raw.data, call("nbytes", SIZE, [P], node))).decode(),
    }


def quantised(floats: np.ndarray) -> bytes:
    """Blocks of q8_0 as ggml's reference makes them, which model files are made with."""
    made = C.create_string_buffer(floats.size // 32 * 34)
    given = np.ascontiguousarray(floats, np.float32)
    arguments = [I32, P, P, I64, I64, I64, P]
    call("quantize_chunk", SIZE, arguments, TYPES["q8_0"], given.ctypes.data, made, 0, 1, floats.size, None)
    return made.raw


if __name__ == "__main__":
    from tests.ggml.op_cases import CASES, quants
    from tests.ggml.recordings import DATA

    made = {}
    for name, case in CASES.items():
        context = RealContext()
        made[name] = context.run(case(context))
    version = call("version", C.c_char_p, []).decode()
    lines = [f"{json.dumps(name)}:{json.dumps(nodes, separators=(',', ':'))}" for name, nodes in made.items()]
    blocks = b64encode(quantised(quants())).decode()
    text = f'{{"ggml":{json.dumps(version)},\n"q8_0":"{blocks}",\n"cases":{{\n' + ",\n".join(lines) + "\n}}\n"
    (DATA / "op_cases.json").write_text(text, "utf-8")
