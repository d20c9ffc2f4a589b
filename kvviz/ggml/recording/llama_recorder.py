"""Recording the graphs that a running llama-cpp-python executes.

The scheduler asks a callback of the context about every node, in execution order and before it is computed. The
callback reads the tensor and always says no, so that nothing is split, synchronised or slowed down.

Source of ``struct ggml_tensor``: ``include/ggml.h``, the same 336 bytes on 64-bit machines from 2025-07 to 2026-10;
`check` compares with the installed library before anything else is read.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kvviz.errors import KvvizError
from kvviz.ggml.graph.tensor import MAX_DIMS, MAX_SRC
from kvviz.ggml.recording.recorded_graphs import Recording
from kvviz.ggml.recording.recording_lines import SCHEMA, from_objects

USAGE = ("any", "weights", "compute")
"""``ggml_backend_buffer_usage`` by number."""

_POINTER, _SIZE, _LONG, _TEXT, _INT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64, ctypes.c_char_p, ctypes.c_int


class TensorStruct(ctypes.Structure):
    """``struct ggml_tensor``."""

    _fields_ = [
        ("type", _INT),
        ("buffer", _POINTER),
        ("ne", _LONG * MAX_DIMS),
        ("nb", _SIZE * MAX_DIMS),
        ("op", _INT),
        ("op_params", ctypes.c_int32 * 16),
        ("flags", ctypes.c_int32),
        ("src", _POINTER * MAX_SRC),
        ("view_src", _POINTER),
        ("view_offs", _SIZE),
        ("data", _POINTER),
        ("name", ctypes.c_char * 64),
        ("extra", _POINTER),
        ("padding", ctypes.c_char * 8),
    ]


class InitParams(ctypes.Structure):
    """``struct ggml_init_params``."""

    _fields_ = [("mem_size", _SIZE), ("mem_buffer", _POINTER), ("no_alloc", ctypes.c_bool)]


_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "ggml_op_name": (_TEXT, (_INT,)),
    "ggml_op_desc": (_TEXT, (_POINTER,)),
    "ggml_type_name": (_TEXT, (_INT,)),
    "ggml_type_size": (_SIZE, (_INT,)),
    "ggml_blck_size": (_LONG, (_INT,)),
    "ggml_init": (_POINTER, (InitParams,)),
    "ggml_free": (None, (_POINTER,)),
    "ggml_tensor_overhead": (_SIZE, ()),
    "ggml_new_tensor_2d": (_POINTER, (_POINTER, _INT, _LONG, _LONG)),
    "ggml_view_1d": (_POINTER, (_POINTER, _POINTER, _LONG, _SIZE)),
    "ggml_backend_buffer_get_base": (_POINTER, (_POINTER,)),
    "ggml_backend_buffer_get_size": (_SIZE, (_POINTER,)),
    "ggml_backend_buffer_name": (_TEXT, (_POINTER,)),
    "ggml_backend_buffer_get_usage": (_INT, (_POINTER,)),
    "ggml_backend_buffer_is_host": (ctypes.c_bool, (_POINTER,)),
}


def _typed(library: Any) -> Any:
    for name, (result, arguments) in _FUNCTIONS.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise KvvizError(f"this ggml has no function {name}: it cannot be recorded") from None
        function.restype, function.argtypes = result, arguments
    return library


def _check(library: Any) -> None:
    """Let a library make a view, read it through `TensorStruct`, and raise if this ggml has another struct."""
    context = library.ggml_init(InitParams(1 << 16, None, False))
    try:
        whole = library.ggml_new_tensor_2d(context, 0, 5, 7)
        part = TensorStruct.from_address(library.ggml_view_1d(context, whole, 3, 16))
        own = TensorStruct.from_address(whole)
        right = (
            tuple(own.ne) == (5, 7, 1, 1)
            and tuple(own.nb) == (4, 20, 140, 140)
            and bool(own.data)
            and not own.view_src
            and (part.view_src, part.src[0], part.view_offs, part.data) == (whole, whole, 16, own.data + 16)
            and part.op_params[0] == 16
            and part.name.endswith(b"(view)")
            and 0 <= library.ggml_tensor_overhead() - ctypes.sizeof(TensorStruct) <= 64
            and library.ggml_op_name(part.op) == b"VIEW"
        )
    finally:
        library.ggml_free(context)
    if not right:
        raise KvvizError("this ggml has an unknown layout of struct ggml_tensor: it cannot be recorded")


MOST_VALUES = 4096
"""Elements of an index tensor that are kept, at most."""

_INTEGERS = {"i32": ctypes.c_int32, "i64": ctypes.c_int64}
_ROLES = {"weights": "weight", "any": "state"}


@contextmanager
def record(llama: Any) -> Iterator[Recording]:
    """Record what a ``llama_cpp.Llama`` executes; its state is kept, before and after.

    Meanwhile it uses another context, made like its own but with a callback, which a context accepts only
    when it is made. So there are two KV caches meanwhile; LoRA adapters are not carried over.

    Parameters
    ----------
    llama : llama_cpp.Llama

    Yields
    ------
    Recording
        It has its graphs when the block ends; ``recording.save("decode.jsonl.gz")`` keeps them.

    Raises
    ------
    KvvizError
        If llama-cpp-python is missing, its ggml is unknown, or nothing was executed.

    Examples
    --------
    >>> with kvviz.ggml.record(llama) as recording:              # doctest: +SKIP
    ...     llama("The quick brown fox", max_tokens=4)
    >>> recording.trace.to_html("decode.html")                   # doctest: +SKIP
    """
    low, library = _llama_cpp()
    held = getattr(llama, "_ctx", None)
    if held is None or not hasattr(held, "ctx") or not hasattr(llama, "context_params"):
        raise KvvizError(f"a {type(llama).__name__} is not a llama_cpp.Llama; pass the object that generates the text")
    taking = Taking(library)
    # Only the context keeps pointers to these.
    asked, aborted = low.ggml_backend_sched_eval_callback(taking.asked), low.ggml_abort_callback(taking.computing)
    params = type(held.params).from_buffer_copy(held.params)
    params.cb_eval, params.abort_callback = asked, aborted
    fresh = low.llama_init_from_model(held.model.model, params)
    if not fresh:
        raise KvvizError("llama.cpp could not create a second context to record in; there may be too little memory")
    recording = Recording("llama.cpp", ())
    old = held.ctx
    calls = {name: call for name in ("decode", "encode") if (call := getattr(held, name, None)) is not None}

    def noting(name: str) -> Any:
        def called(batch: Any) -> Any:
            taking.begin_call(int(batch.batch.n_tokens), name)
            return calls[name](batch)

        return called

    try:
        _move_state(low, old, fresh)
        _point(low, held, fresh)
        held.__dict__.update({name: noting(name) for name in calls})
        yield recording
        _move_state(low, fresh, old)
    finally:
        for name in calls:
            held.__dict__.pop(name, None)
        _point(low, held, old)
        low.llama_free(fresh)
    import llama_cpp

    lines = taking.finished({"llama_cpp_python": str(getattr(llama_cpp, "__version__", ""))})
    found = from_objects(lines, recording.title)
    recording.graphs, recording.meta, recording.lines = found.graphs, found.meta, lines


def _llama_cpp() -> tuple[Any, Any]:
    try:
        from llama_cpp import _ggml
        from llama_cpp import llama_cpp as low

        library = _typed(_ggml.libggml)
    except (ImportError, AttributeError, OSError) as error:
        raise KvvizError(
            f"recording needs llama-cpp-python 0.3.14 or later (pip install llama-cpp-python): {error}"
        ) from None
    _check(library)
    return low, library


def _point(low: Any, held: Any, context: Any) -> None:
    """Let a Python wrapper of a context use another context."""
    held.ctx = context
    if hasattr(held, "memory"):
        held.memory = low.llama_get_memory(context)


def _move_state(low: Any, source: Any, target: Any) -> None:
    """Copy the KV caches and other state."""
    size = int(low.llama_state_get_size(source))
    state = (ctypes.c_uint8 * size)()
    size = int(low.llama_state_get_data(source, state, size))
    if size and not low.llama_state_set_data(target, state, size):
        raise KvvizError("llama.cpp could not copy the state of its context")


class Taking:
    """A recording while llama.cpp runs. `asked` and `computing` are the callbacks ``cb_eval`` and ``abort_callback`` of
    ``llama_context_params``; call `begin_call` before each ``llama_decode``."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self.error: Exception | None = None
        self._lines: list[dict[str, Any]] = []
        self._graphs: list[dict[str, Any]] = []
        # By address: tensors that outlive graphs, those of this graph, and the nodes among these.
        self._kept: dict[int, int] = {}
        self._seen: dict[int, int] = {}
        self._order: list[int] = []
        self._before: list[int] = []
        self._buffers: dict[int, int] = {}
        self._types: set[int] = set()
        self._ids = 0
        self._calls: Counter[str] = Counter()
        self._step = ""
        self._anew = True

    def begin_call(self, tokens: int, call: str = "decode") -> None:
        """A ``llama_decode`` or ``llama_encode`` begins; it executes other graphs than before."""
        name = "encode" if call == "encode" else "decode" if tokens == 1 else "prefill"
        count = self._calls[name]
        self._step = f"decode{count}" if name == "decode" else f"{name}{count or ''}"
        self._calls[name] += 1
        self._anew = True

    def computing(self, _: Any = None) -> bool:
        """A node was computed: the next one that is asked about begins another graph. Never asks to stop."""
        self._anew = True
        return False

    def asked(self, address: int, ask: bool, _: Any = None) -> bool:
        """Read a node. Never requests to see it computed."""
        try:
            if ask and self.error is None:
                if self._anew or (self._seen.get(address) is not None and address in self._order):
                    self._begin()
                self._tensor(address, True)
        except Exception as error:  # an exception cannot pass through C
            self.error = error
        return False

    def finished(self, meta: dict[str, Any]) -> list[dict[str, Any]]:
        if self.error is not None:
            raise KvvizError(f"a tensor could not be read: {self.error}")
        if not self._graphs:
            raise KvvizError("llama.cpp executed no graph while it was recorded")
        self._close()
        names = {number: self.library.ggml_type_name(number).decode() for number in sorted(self._types)}
        sizes = {
            name: [self.library.ggml_blck_size(number), self.library.ggml_type_size(number)]
            for number, name in names.items()
        }
        return [{"k": "meta", "schema": SCHEMA, **meta, "types": sizes}, *self._lines]

    def _begin(self) -> None:
        self._close()
        self._anew = False
        self._before, self._order, self._seen = self._order, [], {}
        graph = {"k": "graph", "g": len(self._graphs), "step": self._step, "n_nodes": 0, "n_leafs_new": 0}
        self._graphs.append(graph)
        self._lines.append(graph)

    def _close(self) -> None:
        if self._graphs:
            same = bool(self._before) and self._before == self._order
            self._graphs[-1].update(n_nodes=len(self._order), same_pointers_as_previous=same)

    def _buffer(self, address: int | None) -> int | None:
        if not address:
            return None
        if address not in self._buffers:
            self._buffers[address] = len(self._buffers)
            line = {
                "k": "buffer",
                "buf": self._buffers[address],
                "name": self.library.ggml_backend_buffer_name(address).decode("utf-8", "replace"),
                "usage": self._usage(address),
                "size": self.library.ggml_backend_buffer_get_size(address),
            }
            self._lines.append(line)
        return self._buffers[address]

    def _usage(self, buffer: int | None) -> str:
        usage = self.library.ggml_backend_buffer_get_usage(buffer) if buffer else -1
        return USAGE[usage] if 0 <= usage < len(USAGE) else "?"

    def _tensor(self, address: int, is_node: bool) -> int:
        if address in self._seen:
            return self._seen[address]
        tensor = TensorStruct.from_address(address)
        root = TensorStruct.from_address(tensor.view_src) if tensor.view_src else tensor
        buffer = tensor.buffer or root.buffer
        role = "" if is_node else _ROLES.get(self._usage(buffer), "input")
        keeps = role in ("weight", "state")
        if keeps and address in self._kept:
            self._seen[address] = self._kept[address]
            return self._kept[address]
        id = self._seen[address] = self._ids
        self._ids += 1
        if keeps:
            self._kept[address] = id
        self._lines.append(self._line(address, tensor, root, buffer, role, id))
        return id

    def _line(self, address: int, tensor: Any, root: Any, buffer: Any, role: str, id: int) -> dict[str, Any]:
        library, graph = self.library, self._graphs[-1]
        src = [self._tensor(one, False) if one else None for one in tensor.src]
        while src and src[-1] is None:
            src.pop()
        view_src = self._tensor(tensor.view_src, False) if tensor.view_src else None
        params = list(tensor.op_params)
        while params and not params[-1]:
            params.pop()
        op, type_ = library.ggml_op_name(tensor.op).decode(), library.ggml_type_name(tensor.type).decode()
        self._types.add(tensor.type)
        line: dict[str, Any] = {"k": "leaf" if role else "node", "g": graph["g"], "id": id}
        if role:
            line["role"] = role
            graph["n_leafs_new"] += 1
        else:
            line["i"] = len(self._order)
            self._order.append(address)
        line.update(name=tensor.name.decode("utf-8", "replace"), op=op, type=type_, ne=list(tensor.ne))
        line.update(nb=list(tensor.nb), flags=tensor.flags, src=src, view_src=view_src, view_offs=tensor.view_offs)
        line["buf"] = self._buffer(buffer)
        if op in ("UNARY", "GLU"):
            line["desc"] = library.ggml_op_desc(address).decode()
        if params:
            line["op_params"] = params
        if buffer and tensor.data:
            line["buf_offs"] = tensor.data - library.ggml_backend_buffer_get_base(buffer)
        if tensor.data and root.data:
            line["root_offs"] = tensor.data - root.data
        if role == "input" and type_ in _INTEGERS and tensor.data and buffer:
            count = tensor.ne[0] * tensor.ne[1] * tensor.ne[2] * tensor.ne[3]
            if count <= MOST_VALUES and library.ggml_backend_buffer_is_host(buffer):
                line["values"] = list((_INTEGERS[type_] * count).from_address(tensor.data))
        return line
