"""Inputs made from what a graph declares, for those who have a model and nothing to feed it.

Numbers are seeded, so that the same model and dimensions give the same inputs every time.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kvviz.decode.feeds import control_feeds, first_caches
from kvviz.errors import InputError
from kvviz.graph.caches import CachePair, cache_pairs, control_inputs, logits_output
from kvviz.graph.model import Dim, Graph, Value

# Inputs that follow from the tokens of a run and the rows of its caches; see `kvviz.decode.feeds.control_feeds`.
_FOLLOW = {
    "attention_mask",
    "position_ids",
    "cache_position",
    "write_indices",
    "nonpad_kv_seqlen",
    "use_cache_branch",
    "past_sequence_length",
    "total_sequence_length",
    "seqlens_k",
    "num_logits_to_keep",
}
_OPERATIONS: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.FloorDiv: operator.floordiv,
}
_LARGEST_TOKEN = 100


class Maker:
    """Makes the inputs that a caller did not give.

    Parameters
    ----------
    graph : Graph
    dims : mapping of str to int
        Lengths of symbolic dimensions by name; ``"x.0"`` is the first, nameless one of input x.
    given : mapping
        Inputs that are there already; their shapes tell dimensions too.
    decoding : bool
        The inputs are for a decode, which makes tokens, caches and all that follows from them by itself.

    Raises
    ------
    InputError
        If ``dims`` names a dimension that the graph does not have.
    """

    def __init__(self, graph: Graph, dims: Mapping[str, int], given: Mapping[str, Any], decoding: bool = False) -> None:
        self.graph = graph
        self.given = given
        self.pairs = {pair.input: pair for pair in cache_pairs(graph)}
        roles = control_inputs(graph)
        self.roles = roles if "tokens" in roles else {}
        follow = {name for role, name in self.roles.items() if role in _FOLLOW}
        if decoding:
            follow |= {self.roles.get("tokens", ""), *self.pairs}
        wanted = [v for v in graph.inputs if v.name not in given and v.name not in follow and v.kind != "optional"]
        for value in wanted:
            if value.kind != "tensor" or value.dtype is None or value.shape is None:
                raise InputError(f"input {value.name!r} ({value.kind}) cannot be made up; give it with the inputs")
        self.wanted = wanted
        self.dims = dict(dims)
        self._check_names()
        self._learn(decoding)

    def open_dims(self) -> dict[str, int]:
        """Dimensions that nobody told yet, each with a length that would do for a first try."""
        missing: dict[str, int] = {}
        for value in self.wanted:
            for axis, dim in enumerate(value.shape or ()):
                for name in self._unknown(_key(value, axis, dim)):
                    missing.setdefault(name, self._likely(value, axis, name))
        past = [name for name in self._past_names() if name in missing]
        return {name: length for name, length in missing.items() if name not in past[1:]}

    def make(self, seed: int = 0) -> dict[str, Any]:
        """The given inputs and the made ones.

        Tokens are random below 100, masks ones, positions count on from the caches' rows, other integers are 0 or 1,
        floating-point numbers normally distributed, booleans False.

        Raises
        ------
        InputError
            If dimensions are open.
        """
        missing = self.open_dims()
        if missing:
            raise InputError(f"the lengths of these dimensions are not known: {', '.join(missing)}")
        random = np.random.default_rng(seed)
        made = {value.name: self._array(value, random) for value in self.wanted}
        feeds = {**made, **self.given}
        tokens = feeds.get(self.roles.get("tokens", ""))
        if tokens is None:
            return feeds
        tokens = np.asarray(tokens)
        past = self._past_rows(feeds)
        mask = np.ones((*tokens.shape[:1], past + tokens.shape[-1]), np.int64)
        return {**control_feeds(self.graph, self.roles, tokens, mask, past, feeds), **feeds}

    # -- dimensions ---------------------------------------------------------------------------------------------------

    def _check_names(self) -> None:
        known = {name for v in self.graph.inputs for i, d in enumerate(v.shape or ()) for name in _names(_key(v, i, d))}
        known |= {dim for value in self.graph.inputs for dim in value.shape or () if isinstance(dim, str)}
        unknown = [name for name in self.dims if name not in known]
        if unknown:
            told = f"; it has {', '.join(sorted(known))}" if known else ": all of its inputs have a fixed shape"
            raise InputError(f"the model has no dimension named {', '.join(map(repr, unknown))}{told}")

    def _learn(self, decoding: bool) -> None:
        """Dimensions that need not be asked for."""
        for value in self.graph.inputs:
            if value.name in self.given and value.shape is not None:
                shape = np.shape(self.given[value.name])
                for axis, (dim, length) in enumerate(zip(value.shape, shape)):
                    self.dims.setdefault(str(_key(value, axis, dim)), length)
        if decoding:
            declared = {value.name: value for value in self.graph.inputs}
            tokens = declared.get(self.roles.get("tokens", ""))
            if tokens is not None and tokens.shape:
                self.dims.setdefault(str(tokens.shape[0]), 1)
        for value in self.wanted:
            if value.name in self.pairs:
                self._learn_head_size(value, self.pairs[value.name])
        past = self._past_names()
        length = next((self.dims[name] for name in past if name in self.dims), None)
        if length is not None:
            self.dims.update({name: length for name in past if name not in self.dims})

    def _learn_head_size(self, value: Value, pair: CachePair) -> None:
        """What the model or its configuration says of a cache's size, beside batch and rows."""
        try:
            shape = first_caches(self.graph, (pair,), 1, None, {}, 0)[value.name].shape
        except InputError:
            return
        for axis, dim in enumerate(value.shape or ()):
            if axis not in (0, pair.axis) and isinstance(dim, str) and "batch" not in dim:
                self.dims.setdefault(dim, shape[axis])

    def _past_names(self) -> list[str]:
        """Names of the row dimension of growing caches: exporters give each cache its own, but they are one length."""
        names = []
        for value in self.wanted:
            pair = self.pairs.get(value.name)
            if pair is not None and pair.protocol == "growing" and pair.axis is not None and value.shape:
                dim = value.shape[pair.axis]
                if isinstance(dim, str) and dim.isidentifier():
                    names.append(dim)
        return list(dict.fromkeys(names))

    def _past_rows(self, feeds: Mapping[str, Any]) -> int:
        for name, pair in self.pairs.items():
            if pair.protocol == "growing" and pair.axis is not None and name in feeds:
                return int(np.shape(feeds[name])[pair.axis])
        return 0

    def _unknown(self, dim: Dim) -> list[str]:
        if isinstance(dim, int) or dim in self.dims:
            return []
        return [name for name in _names(dim) if name not in self.dims]

    def _length(self, dim: Dim) -> int:
        if isinstance(dim, int):
            return dim
        known = self.dims.get(str(dim))
        return _evaluate(ast.parse(str(dim), mode="eval").body, self.dims) if known is None else known

    def _likely(self, value: Value, axis: int, name: str) -> int:
        return 1 if "batch" in name or value.name == self.roles.get("tokens") else 4

    # -- values -------------------------------------------------------------------------------------------------------

    def _array(self, value: Value, random: np.random.Generator) -> np.ndarray:
        shape = tuple(self._length(_key(value, axis, dim)) for axis, dim in enumerate(value.shape or ()))
        dtype = np.dtype(value.dtype)
        if value.name == self.roles.get("tokens"):
            return random.integers(0, self._tokens(), shape).astype(dtype)
        if dtype.kind == "O":
            return np.full(shape, "", object)
        if dtype.kind in "iub":
            if "mask" in value.name.lower():
                return np.ones(shape, dtype)
            return np.zeros(shape, dtype) if dtype.kind == "b" else random.integers(0, 2, shape).astype(dtype)
        return random.standard_normal(shape).astype(dtype)

    def _tokens(self) -> int:
        """Tokens are smaller than this, and than the vocabulary as far as the model declares it."""
        logits = logits_output(self.graph)
        shape = next((value.shape for value in self.graph.outputs if value.name == logits), None)
        vocabulary = shape[-1] if shape else None
        return min(_LARGEST_TOKEN, vocabulary) if isinstance(vocabulary, int) else _LARGEST_TOKEN


def _key(value: Value, axis: int, dim: Dim) -> Dim:
    return f"{value.name}.{axis}" if dim is None else dim


def _names(dim: Dim) -> list[str]:
    """The names in a dimension such as ``past + new``; the whole where it is no sum or product of names."""
    if isinstance(dim, int):
        return []
    try:
        tree = ast.parse(str(dim), mode="eval").body
        _evaluate(tree, dict.fromkeys((n.id for n in ast.walk(tree) if isinstance(n, ast.Name)), 1))
    except (SyntaxError, ValueError, KeyError, ZeroDivisionError, RecursionError, MemoryError):
        return [str(dim)]
    return list(dict.fromkeys(node.id for node in ast.walk(tree) if isinstance(node, ast.Name)))


def _evaluate(tree: ast.expr, dims: Mapping[str, int]) -> int:
    if isinstance(tree, ast.Name):
        return dims[tree.id]
    if isinstance(tree, ast.Constant) and type(tree.value) is int:
        return tree.value
    if isinstance(tree, ast.BinOp) and type(tree.op) in _OPERATIONS:
        return _OPERATIONS[type(tree.op)](_evaluate(tree.left, dims), _evaluate(tree.right, dims))
    raise ValueError("not a sum or product of names and numbers")
