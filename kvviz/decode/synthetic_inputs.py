"""Inputs made from a graph's declarations, for models without data.

Numbers are seeded, so that the same model and dimensions give the same inputs every time.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from kvviz.decode import plausible_values
from kvviz.decode.run_inputs import BY_ROLE, check_rank, control_feeds, first_caches
from kvviz.decode.symbolic_dimensions import Dimensions, fitting, has_windows, place
from kvviz.errors import InputError
from kvviz.graph.cache_pairs import CachePair, cache_pairs, control_inputs
from kvviz.graph.loading.external import DEFAULT_LIMIT
from kvviz.graph.model import Graph, Value
from kvviz.memory.ghosts import ghost
from kvviz.other_names import with_other_names
from kvviz.trace.model_or_trace import as_graph

_PAST_ROWS = 4
_TOKENS = 8
_ELSEWHERE = 4
_PIXELS = 64  # nets that halve five times leave two, and add what they halved to what they double again


@with_other_names
def inputs(
    graph: Graph | str | os.PathLike[str], dims: Mapping[str, int] | None = None, given: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Arrays for every input of a graph, made from what it declares and how it uses them.

    Token numbers are within the embedding that they are looked up in, masks are ones, positions count from 0 (or on
    from the rows of the caches), lengths are those of what they measure, other numbers are random with a fixed seed.

    Parameters
    ----------
    graph : Graph or path
        From `kvviz.load`, or the path of a model.
    dims : mapping of str to int, optional
        Lengths of dimensions by name (``"batch"``) or place (``"x.0"``: the first one of input x). The others are
        chosen: a batch of 1, one new token after 4 rows of a growing cache, 64 for the height and width of an image
        that a convolution reads, 4 to 8 elsewhere; more if a trial run shows that a window needs it.
    given : mapping, optional
        Inputs that exist already. They are used as they are, and their shapes determine dimensions.

    Returns
    -------
    dict of str to ndarray
        What `kvviz.run` takes.

    Raises
    ------
    InputError
        If ``dims`` names a dimension that the graph does not have or that has another length, or if an input cannot be
        made (a sequence, an unknown rank, more axes than NumPy has, more than 8 GiB).

    Examples
    --------
    >>> graph = kvviz.load("assets/models/storyteller/concat/model.onnx")
    >>> {name: array.shape for name, array in kvviz.inputs(graph, {"batch": 2}).items()}
    """
    maker = Maker(as_graph(graph, "kvviz.inputs"), dims or {}, given or {})
    return maker.filled(maker.proposed()).make()


def generated(
    graph: Graph, dims: Mapping[str, int], given: Mapping[str, Any], *, decoding: int = 0, dry: bool = False
) -> dict[str, Any]:
    """The given inputs, and the others with plausible lengths; options as of `Maker`."""
    maker = Maker(graph, dims, given, decoding, dry)
    return maker.filled(maker.open_dims()).make()


class Maker:
    """Makes the inputs that a caller did not give; ``dims`` as in `inputs`. ``decoding``: they are for a decode of so
    many sequences, which makes tokens, caches and derived inputs itself. ``dry``: only layouts count; data have no
    contents."""

    def __init__(
        self,
        graph: Graph,
        dims: Mapping[str, int],
        given: Mapping[str, Any],
        decoding: int = 0,
        dry: bool = False,
    ) -> None:
        self.dry = dry
        self.graph = graph
        self.given = given
        self.stated = dict(dims)
        self.decoding = int(decoding)
        self.pairs = {pair.input: pair for pair in cache_pairs(graph)}
        roles = control_inputs(graph)
        self.roles = roles if "tokens" in roles or "embeddings" in roles else {}
        follow = {name for role, name in self.roles.items() if role in BY_ROLE and role != "tokens"}
        if decoding:
            follow |= {self.roles.get("tokens", ""), *self.pairs}
        wanted = [v for v in graph.inputs if v.name not in given and v.name not in follow and v.kind != "optional"]
        for value in wanted:
            if value.kind != "tensor" or value.dtype is None or value.shape is None:
                raise InputError(f"input {value.name!r} ({value.kind}) cannot be generated; give it with the inputs")
        self.wanted = wanted
        self.dims = Dimensions(graph, dims)
        if decoding:
            self._check_stated()
        self._learn()

    def open_dims(self) -> dict[str, int]:
        """Dimensions without a known length, each with a plausible length."""
        missing: dict[str, int] = {}
        for value in self.wanted:
            for axis in range(len(value.shape or ())):
                for name in self.dims.unknown(value, axis):
                    missing.setdefault(name, self._likely(value, axis, name))
        past = [name for name in self._past_names() if name in missing]
        return {name: length for name, length in missing.items() if name not in past[1:]}

    def proposed(self) -> dict[str, int]:
        """The open dimensions, with lengths that the graph accepted in a trial if windows constrain them."""
        first = self._agreeing(self.open_dims())
        keep = {*self._past_names(), *(name for name in first if "batch" in name.lower()), *self._batches()}
        free = [name for name in first if name not in keep]
        if self.decoding:
            return first
        return fitting(self.graph, first, free, lambda lengths: self.filled(lengths).make())

    def _agreeing(self, lengths: dict[str, int]) -> dict[str, int]:
        """Open lengths, adjusted so that sums and products equal the given totals."""
        for name, total in self.stated.items():
            parts = [part for part in self.dims.names(name) if part in lengths]
            if parts and parts != [name]:
                part = parts[-1]
                length = self.dims.missing_part(name, part, lengths, total)
                lengths[part] = lengths[part] if length is None else length
        return lengths

    def filled(self, lengths: Mapping[str, int]) -> Maker:
        return Maker(self.graph, {**self.stated, **lengths}, self.given, self.decoding, self.dry)

    def make(self, seed: int = 0) -> dict[str, Any]:
        missing = self.open_dims()
        if missing:
            raise InputError(f"the lengths of these dimensions are not known: {', '.join(missing)}")
        random = np.random.default_rng(seed)
        shapes = {value.name: self._shape(value) for value in self.wanted}
        scene = plausible_values.Scene(self.graph, self.roles, self._measured(shapes))
        made = {
            value.name: ghost(shapes[value.name], value.dtype)
            if self.dry and self._is_data(value)
            else plausible_values.array(scene, value, shapes[value.name], random)
            for value in self.wanted
        }
        feeds = {**made, **self.given}
        tokens = self._tokens(feeds)
        if tokens is not None:
            past = self._past_rows(feeds)
            mask = np.ones((len(tokens), past + tokens.shape[1]), np.int64)
            feeds = {**control_feeds(self.graph, self.roles, tokens, mask, past, feeds), **feeds}
        return {name: feeds[name] for name in (*(n for n in self._declared if n in feeds), *self.given)}

    def _is_data(self, value: Value) -> bool:
        """Whether an input holds data, not lengths, masks or positions."""
        if value.name in self.pairs or value.name in (self.roles.get("tokens"), self.roles.get("embeddings")):
            return True
        return plausible_values.is_data(value)

    def _learn(self) -> None:
        """Learn dimensions that follow from the model."""
        for value in self.graph.inputs:
            if value.name in self.given and value.shape is not None:
                for axis, length in enumerate(np.shape(self.given[value.name])[: len(value.shape)]):
                    self.dims.observe(value, axis, length)
        if self.decoding:
            tokens = self._declared.get(self.roles.get("tokens", ""))
            if tokens is not None and tokens.shape:
                self.dims.learn(tokens, 0, self.decoding)
        for value in self.wanted:
            if value.name in self.pairs:
                self._learn_size(value, self.pairs[value.name])
        past = self._past_names()
        length = next((self.dims.lengths[name] for name in past if name in self.dims.lengths), None)
        if length is not None:
            self.dims.lengths.update({name: length for name in past if name not in self.dims.lengths})

    def _check_stated(self) -> None:
        """Check that a decode is given none of the dimensions that it determines: sequences, tokens and cache rows."""
        tokens = self._declared.get(self.roles.get("tokens", ""))
        batch = {str(tokens.shape[0]), place(tokens, 0)} if tokens is not None and tokens.shape else set()
        used = {
            name
            for value in (*self.wanted, *(self._declared[name] for name in self.given if name in self._declared))
            for axis, dim in enumerate(value.shape or ())
            for name in (place(value, axis), str(dim), *self.dims.names(None if isinstance(dim, int) else dim))
        }
        for name, length in self.stated.items():
            if name in batch and length != self.decoding:
                many = "one sequence" if self.decoding == 1 else f"{self.decoding} sequences"
                raise InputError(f"a decode has {many}, so dimension {name!r} is {self.decoding}, not {length}")
            if name not in used | batch:
                raise InputError(
                    f"dimension {name!r} follows from the prompt and the caches of a decode; do not give its length"
                )

    @cached_property
    def _declared(self) -> dict[str, Value]:
        return {value.name: value for value in self.graph.inputs}

    def _learn_size(self, value: Value, pair: CachePair) -> None:
        """Learn a cache's sizes, other than batch and rows, from the model or its configuration."""
        try:
            shape = first_caches(self.graph, (pair,), 1, None, {}, 0)[value.name].shape
        except InputError:
            return
        for axis, dim in enumerate(value.shape or ()):
            if axis not in (0, pair.axis) and isinstance(dim, str) and "batch" not in dim:
                self.dims.learn(value, axis, shape[axis])

    def _past_names(self) -> list[str]:
        """Names of the row dimension of growing caches: exporters give each cache its own, but they are one length."""
        names = []
        for value in self.wanted:
            pair = self.pairs.get(value.name)
            if pair is not None and pair.protocol == "growing" and pair.axis is not None and value.shape:
                dim = value.shape[pair.axis]
                if dim is None:
                    names.append(place(value, pair.axis))
                elif isinstance(dim, str) and self.dims.names(dim) == [dim]:
                    names.append(dim)
        return list(dict.fromkeys(names))

    def _batches(self) -> set[str]:
        """Names of first dimensions that are a batch."""
        found = set()
        for value in self.wanted:
            if value.shape and plausible_values.is_batch(value):
                found.update(self.dims.unknown(value, 0))
        return found

    def _likely(self, value: Value, axis: int, name: str) -> int:
        if "batch" in name.lower() or (axis == 0 and name in self._batches()):
            return 1
        pair = self.pairs.get(value.name)
        if pair is not None and axis == pair.axis:
            return _PAST_ROWS
        if value.name in (self.roles.get("tokens"), self.roles.get("embeddings")):
            return 1 if self.pairs else _TOKENS
        if axis in plausible_values.sides(value) and has_windows(self.graph):
            return _PIXELS
        return _ELSEWHERE

    def _shape(self, value: Value) -> tuple[int, ...]:
        check_rank(value)
        shape = tuple(self.dims.length(value, axis) for axis in range(len(value.shape or ())))
        nbytes = math.prod(shape) * np.dtype(value.dtype).itemsize
        if nbytes > DEFAULT_LIMIT and not self.dry:
            raise InputError(
                f"input {value.name!r} of shape {list(shape)} would have {nbytes:,} bytes; give shorter dimensions"
            )
        return shape

    def _past_rows(self, feeds: Mapping[str, Any]) -> int:
        for name, pair in self.pairs.items():
            if pair.protocol == "growing" and pair.axis is not None and name in feeds:
                return int(np.shape(feeds[name])[pair.axis])
        return 0

    def _tokens(self, feeds: Mapping[str, Any]) -> np.ndarray | None:
        """The tokens of the run as (batch, length), or as many zeros if it gets embeddings; None without both."""
        tokens = feeds.get(self.roles.get("tokens", ""))
        if tokens is not None:
            array = np.asarray(tokens)
            return array.reshape(1, -1) if array.ndim < 2 else array.reshape(len(array), math.prod(array.shape[1:]))
        embeddings = np.shape(feeds.get(self.roles.get("embeddings", ""), ()))
        return np.zeros(embeddings[:2], np.int64) if len(embeddings) == 3 else None

    def _measured(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
        """For each input with rows of data the length of its longest open dimension besides the batch."""
        found = {}
        for value in self.graph.inputs:
            shape = np.shape(self.given[value.name]) if value.name in self.given else shapes.get(value.name, ())
            if len(shape) < 2 or value.name in self.pairs or value.shape is None:
                continue
            open_axes = [axis for axis, dim in enumerate(value.shape) if axis and not isinstance(dim, int)]
            found[value.name] = max(shape[axis] for axis in open_axes or range(1, len(shape)))
        return found
