"""Errors that kvviz raises, and the form of names in their messages."""

from __future__ import annotations

from collections.abc import Callable
from weakref import ref


class KvvizError(Exception):
    """Base class. In a notebook it shows as one line, without a traceback of our internals."""

    def _render_traceback_(self) -> list[str]:
        """The lines that IPython prints instead of a traceback."""
        return [f"{type(self).__name__}: {self}"]


class LoadError(KvvizError):
    """The model could not be read: not a model, truncated, unsafe or missing external data."""


class GraphError(KvvizError):
    """The graph cannot be run: a cycle, an undefined value, a name used twice."""


class UnsupportedOpsError(KvvizError):
    """The model uses operators for which there is no kernel; the message lists all of them."""


class InputError(KvvizError):
    """An input of a run has a wrong name, dtype or shape, or is missing."""


class OpError(KvvizError):
    """A kernel failed; the message names the node, its inputs with shapes, and the cause."""


class ExtensionError(KvvizError):
    """A kernel, policy or schedule that the caller wrote does not do what `kvviz.ext` asks of it."""


class UnknownValueError(OpError):
    """A dry run needs a number that it does not compute; the message names the node, the value and what to give."""


class LimitError(KvvizError):
    """A tensor would be larger than the set limit."""


class SaveError(KvvizError):
    """A file could not be written; the old file is unchanged."""


class ReplayError(KvvizError):
    """A requested past value was not recorded and cannot be recomputed."""


class DeviceError(KvvizError):
    """A device refused a call: the message names the tensor, the rule and the caller's line.

    Attributes
    ----------
    handle : Handle or None
        None also if the caller has dropped it since: an error does not keep a tensor.
    rule : str
        In a few words, e.g. ``"use after free"``.
    line : str
        ``file:line code`` of the caller.
    """

    def __init__(self, message: str, handle: object = None, rule: str = "", line: str = "") -> None:
        super().__init__(message)
        try:
            self._find: Callable[[], object] = ref(handle)
        except TypeError:
            self._find = lambda: handle
        self.rule = rule
        self.line = line

    @property
    def handle(self) -> object:
        """The handle in question, as long as it is alive."""
        return self._find()


def name_text(name: str | bytes) -> str:
    """A name from protobuf as text; bytes that are not UTF-8 raise an error."""
    return name if isinstance(name, str) else name.decode()


def quoted(name: str, longest: int = 120) -> str:
    """A name in quotes for messages: on one line, and without its middle if it is longer than ``longest``."""
    if len(name) > longest:
        name = f"{name[: longest // 2]}…{name[-longest // 2 :]}"
    line = "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in name)
    return f"'{line}'"
