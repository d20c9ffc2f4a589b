"""The way of a cache: back from its output to its input, and from there to the attention that reads it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from kvviz.graph.cache_writes import MS, PICKS, VIEWS, cache_ops
from kvviz.graph.model import Node
from kvviz.trace.index.frame_values import RunFrames, Spot
from kvviz.trace.recording import Trace
from kvviz.trace.records import Cache


@dataclass(frozen=True, slots=True)
class Link:
    """One op on the path of a cache. Its kind is ``"write"`` (adds or overwrites rows), ``"move"`` (a view, or the same
    rows in another order or place), ``"join"`` (combines parts that were written separately) or ``"make"``."""

    frame: int  # number of its frame within the run
    node: Node
    output: int  # position of the output that continues the cache
    past: int  # position of the input that it continues; -1 if it makes all rows
    kind: str


@dataclass(frozen=True, slots=True)
class Reader:
    """An attention that reads a cache. Its kind is ``"past"`` (an operator that keeps the cache itself), ``"keys"``
    (one that gets keys or values), ``"softmax"``, or ``"product"`` (without a softmax)."""

    frame: int
    node: Node
    kind: str
    # what happened to the cache between the value that is read and the cache's output, last op first
    after: tuple[Link, ...]
    # Slices and Concats between that value and the attention: frame, node, which of its inputs it comes from
    cuts: tuple[tuple[int, Node, str], ...]


@dataclass(frozen=True, slots=True)
class Way:
    links: tuple[Link, ...]  # unordered; each runs at its own step
    spine: tuple[Link, ...]  # in order from the input; only one branch if parts are written separately and joined
    reached: bool  # whether the output leads back to the input
    readers: tuple[Reader, ...]


# Operators with attention inside: positions of the inputs that are keys or values, and of the pasts.
ATTENTION: dict[tuple[str, str], tuple[tuple[int, ...], tuple[int, ...]]] = {
    ("", "Attention"): ((1, 2), (4, 5)),
    (MS, "Attention"): ((), (4,)),
    (MS, "QAttention"): ((), (8,)),
    (MS, "MultiHeadAttention"): ((1, 2), (6, 7)),
    (MS, "GroupQueryAttention"): ((), (3, 4)),
    (MS, "DecoderMaskedMultiHeadAttention"): ((1, 2), (5, 6)),
    (MS, "DecoderMaskedSelfAttention"): ((), (4,)),
    (MS, "SparseAttention"): ((), (3, 4)),
    (MS, "PagedAttention"): ((), (3, 4)),
}
_PRODUCTS = frozenset({"MatMul", "FusedMatMul", "Einsum", "Gemm", "MatMulInteger"})
# Ops that may stand between a cache and the products that read it, and between these and their softmax.
_PASSES = VIEWS | PICKS | {"Add", "Div", "Expand", "Mul", "Neg", "Tile"}
_OPS = "Add Cast Clip Div Dropout Identity IsNaN Max Min Mul Reshape Squeeze Sub Tanh Transpose Unsqueeze Where"
SCORES = frozenset(_OPS.split())
_FARTHEST = 24


def way_of(trace: Trace, frames: RunFrames, cache: Cache) -> Way:
    """The path of a cache through a run; found once for all runs that entered the same bodies."""
    known: dict[Any, Way] = trace.notes.setdefault("cache ways", {})
    key = (frames.signature, cache.input, cache.output)
    if key not in known:
        known[key] = _Walk(frames, cache).way()
    return known[key]


def attention_ops(trace: Trace, cache: Cache) -> tuple[str, ...]:
    """Names of the ops that compute attention weights of a cache: softmaxes, and operators with attention inside. A
    prefill and a step with a past are examined; other runs go the same ways."""
    with_steps = [run.index for run in trace.runs if run.last > run.first][:2]
    found = (reader for run in with_steps for reader in way_of(trace, RunFrames(trace, run), cache).readers)
    return tuple(dict.fromkeys(reader.node.name for reader in found if reader.kind != "product"))


class _Walk:
    def __init__(self, frames: RunFrames, cache: Cache) -> None:
        self.frames = frames
        self.input: Spot = (0, cache.input)
        self.output: Spot = (0, cache.output)
        self.after: dict[Spot, tuple[Link, ...]] = {}  # links from a value to the cache's output, last one first
        self.before: dict[Spot, list[tuple[Spot, Link | None]]] = {}

    def way(self) -> Way:
        """Go back from the output, keep the paths from the input, then find the readers."""
        self._go_back()
        reached = self._reached()
        if self.input in reached:
            links = tuple(self._carrying(reached))
            spine = self._spine(reached)
        else:
            links, reached = self._made()
            spine = tuple(reversed(links))
        # If the run makes the cache anew, its input may still be read, like an encoder's.
        spots = list(dict.fromkeys([*(spot for spot in self.after if spot in reached), self.input]))
        return Way(links, spine, self.input in reached, tuple(self._readers(spots)))

    def _go_back(self) -> None:
        stack: list[tuple[Spot, tuple[Link, ...]]] = [(self.output, ())]
        while stack:
            spot, chain = stack.pop()
            if spot in self.after:
                continue
            self.after[spot] = chain
            self.before[spot] = list(self._sources(*spot))
            for source, link in self.before[spot]:
                stack.append((source, chain if link is None else (*chain, link)))

    def _sources(self, frame: int, name: str) -> Iterator[tuple[Spot, Link | None]]:
        """The values that a value may continue, each with the op between."""
        node = self.frames.graph(frame).producers.get(name)
        if node is None:
            outer = self.frames.outer(frame, name)
            if outer is not None:
                yield outer, None
            return
        position = node.outputs.index(name)
        if self.frames.bodies(frame, node) or (node.op_type == "Loop" and not node.domain):
            inner = self.frames.inner(frame, node, position)
            if inner is not None:
                yield inner, None
            return
        op = next((op for op in cache_ops(node) if op.present == position), None)
        if op is not None:
            yield (frame, node.inputs[op.past]), Link(frame, node, position, op.past, "write")
        elif node.domain:
            return
        elif node.op_type == "Concat":
            for place, given in enumerate(node.inputs):
                if given:
                    yield (frame, given), Link(frame, node, position, place, "write")
        elif node.op_type in VIEWS | PICKS:
            yield (frame, node.inputs[0]), Link(frame, node, position, 0, "move")
        elif node.op_type == "Attention" and position in (1, 2) and position < len(node.inputs):
            # Without a past it returns its keys and values.
            yield (frame, node.inputs[position]), Link(frame, node, position, position, "move")

    def _reached(self) -> set[Spot]:
        onward: dict[Spot, list[Spot]] = {}
        for spot, sources in self.before.items():
            for source, _ in sources:
                onward.setdefault(source, []).append(spot)
        reached: set[Spot] = set()
        stack = [self.input] if self.input in self.after else []
        while stack:
            spot = stack.pop()
            if spot not in reached:
                reached.add(spot)
                stack += onward.get(spot, ())
        return reached

    def _carrying(self, reached: set[Spot]) -> Iterator[Link]:
        for spot in reached:
            _, link = self._step_back(spot, reached)
            if link is not None:
                yield link

    def _step_back(self, spot: Spot, reached: set[Spot]) -> tuple[Spot | None, Link | None]:
        found = [(source, link) for source, link in self.before[spot] if source in reached]
        if not found:
            return None, None
        source, link = found[0]
        if len(found) > 1 and link is not None:
            link = replace(link, kind="join")
        return source, link

    def _spine(self, reached: set[Spot]) -> tuple[Link, ...]:
        spine: list[Link] = []
        spot: Spot | None = self.output
        while spot is not None:
            spot, link = self._step_back(spot, reached)
            if link is not None:
                spine.append(link)
        return tuple(reversed(spine))

    def _made(self) -> tuple[tuple[Link, ...], set[Spot]]:
        """Links of rows that do not come from the input: the op that made them, and later views."""
        links: list[Link] = []
        spot, seen = self.output, {self.output}
        while True:
            sources = self.before[spot]
            if len(sources) != 1:
                break
            source, link = sources[0]
            if link is not None:
                if link.kind == "write":
                    break
                links.append(link)
            spot = source
            seen.add(spot)
        node = self.frames.graph(spot[0]).producers.get(spot[1])
        if node is not None and not self.frames.bodies(spot[0], node):
            links.append(Link(spot[0], node, node.outputs.index(spot[1]), -1, "make"))
        return tuple(links), seen

    def _readers(self, spots: list[Spot]) -> Iterator[Reader]:
        found: dict[tuple[int, int], Reader] = {}
        for spot in spots:
            for reader in self._follow(spot, self.after.get(spot, ())):
                found.setdefault((reader.frame, id(reader.node)), reader)
        yield from found.values()

    def _follow(self, spot: Spot, after: tuple[Link, ...]) -> Iterator[Reader]:
        """Attentions that read a value of the way, but not through a later value of it."""
        own = self.after.keys()
        stack: list[tuple[Spot, tuple[tuple[int, Node, str], ...], int]] = [(spot, (), 0)]
        seen: set[Spot] = set()
        while stack:
            (frame, name), cuts, depth = stack.pop()
            if (frame, name) in seen or depth > _FARTHEST:
                continue
            seen.add((frame, name))
            for node in self.frames.graph(frame).consumers.get(name, ()):
                inner = self.frames.entered(frame, node, name)
                if inner:
                    stack += [(one, cuts, depth + 1) for one in inner if one not in own]
                    continue
                keys, pasts = ATTENTION.get((node.domain, node.op_type), ((), ()))
                places = {place for place, given in enumerate(node.inputs) if given == name}
                if places.intersection(pasts):
                    yield Reader(frame, node, "past", after[: _own(after, node)], cuts)
                elif places.intersection(keys):
                    yield Reader(frame, node, "keys", after, cuts)
                elif node.op_type in _PRODUCTS:
                    softmax = self._softmax(frame, node, name)
                    kind = "product" if softmax is None else "softmax"
                    yield Reader(frame, softmax or node, kind, after, cuts)
                elif node.op_type in _PASSES | {"Concat"} and not node.domain:
                    cut = ((frame, node, name),) if node.op_type in ("Slice", "Concat") else ()
                    onward = [(frame, out) for out in node.outputs if out]
                    stack += [(one, cuts + cut, depth + 1) for one in onward if one not in own]

    def _softmax(self, frame: int, product: Node, name: str) -> Node | None:
        """The softmax after a product of queries and keys, or before one of probabilities and values."""
        graph = self.frames.graph(frame)
        for ahead in (True, False):
            first = product.outputs[:1] if ahead else [given for given in product.inputs if given != name]
            stack = [(value, 0) for value in first]
            while stack:
                value, depth = stack.pop()
                maker = graph.producers.get(value)
                for node in graph.consumers.get(value, ()) if ahead else filter(None, (maker,)):
                    if node.op_type == "Softmax":
                        return node
                    if node.op_type in SCORES and depth < _FARTHEST:
                        onward = node.outputs[:1] if ahead else node.inputs
                        stack += [(one, depth + 1) for one in onward if one]
        return None


def _own(after: tuple[Link, ...], node: Node) -> int:
    """Number of links after an operator that both writes the cache and attends to it."""
    return next((i for i, link in enumerate(after) if link.node is node), len(after))
