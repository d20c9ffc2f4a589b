"""``struct ggml_tensor`` in the memory of a running ggml, and the functions of the library that explain what is in it.

Source: ``include/ggml.h``, the same 336 bytes on 64-bit machines from 2025-07 to 2026-10; `check` compares with the
library at hand before anything else is read.
"""

from __future__ import annotations

import ctypes
from typing import Any

from kvviz.errors import KvvizError
from kvviz.ggml.graph.tensor import MAX_DIMS, MAX_SRC

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


class Library:
    """The functions of a loaded ``libggml``, typed: ``library.ggml_op_name(7)``."""

    def __init__(self, loaded: Any) -> None:
        for name, (result, arguments) in _FUNCTIONS.items():
            try:
                function = getattr(loaded, name)
            except AttributeError:
                raise KvvizError(f"this ggml has no function {name}: it cannot be recorded") from None
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def check(self) -> None:
        """Let the library make a view, read it through `TensorStruct`, and raise if this ggml has another struct."""
        context = self.ggml_init(InitParams(1 << 16, None, False))
        try:
            whole = self.ggml_new_tensor_2d(context, 0, 5, 7)
            part = TensorStruct.from_address(self.ggml_view_1d(context, whole, 3, 16))
            own = TensorStruct.from_address(whole)
            right = (
                tuple(own.ne) == (5, 7, 1, 1)
                and tuple(own.nb) == (4, 20, 140, 140)
                and bool(own.data)
                and not own.view_src
                and (part.view_src, part.src[0], part.view_offs, part.data) == (whole, whole, 16, own.data + 16)
                and part.op_params[0] == 16
                and part.name.endswith(b"(view)")
                and 0 <= self.ggml_tensor_overhead() - ctypes.sizeof(TensorStruct) <= 64
                and self.ggml_op_name(part.op) == b"VIEW"
            )
        finally:
            self.ggml_free(context)
        if not right:
            raise KvvizError("this ggml has an unknown layout of struct ggml_tensor: it cannot be recorded")
