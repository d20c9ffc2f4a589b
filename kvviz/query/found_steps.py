"""The steps that a query finds, in the query's order."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias, overload

import numpy as np

from kvviz.graph.model import Node
from kvviz.query.grammar import BY_NAME, WORDS
from kvviz.query.query_reader import Buffer, Compare, Every, Not, Order, Part, Query, Some, Word, read_query
from kvviz.query.step_facts import (
    HANGS_ON,
    NUMBERS,
    OF_NODE,
    OF_STEP,
    Fact,
    Scene,
    StepGroups,
    first_of,
    short_texts,
    value_of,
)
from kvviz.trace.outcome import endings
from kvviz.trace.recording import Trace
from kvviz.trace.records import Step
from kvviz.trace.schema.log import Ints
from kvviz.trace.units import not_searched

_read = lru_cache(maxsize=256)(read_query)
_CHUNKS = re.compile(r"[0-9]+|[^0-9]+")


@dataclass(frozen=True, slots=True, repr=False)
class Found(Sequence[Step]):
    """The steps that a query found, as a sequence and as a table.

    Attributes
    ----------
    trace : Trace
    query : str
    numbers : tuple of int
        Numbers of the steps, in the query's order.
    """

    trace: Trace
    query: str
    numbers: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, index: int) -> Step: ...
    @overload
    def __getitem__(self, index: slice) -> list[Step]: ...
    def __getitem__(self, index: int | slice) -> Step | list[Step]:
        steps = self.trace.steps
        return [steps[i] for i in self.numbers[index]] if isinstance(index, slice) else steps[self.numbers[index]]

    def __iter__(self) -> Iterator[Step]:
        return (self.trace.steps[i] for i in self.numbers)

    def table(self) -> Any:
        """The steps as `Trace.table` shows them."""
        return self.trace.table(self.numbers)

    def __repr__(self) -> str:
        text = f"{len(self):,} of {len(self.trace.steps):,} steps: {self.query}"
        if gone := not_searched(self.trace):
            text += f"\n{gone}"
        return f"{text}\n{self.table()!r}" if self.numbers else text

    def _repr_html_(self) -> str:
        html: str = self.table()._repr_html_()
        return html


def find(trace: Trace, text: str) -> Found:
    query = _read(text)
    return Found(trace, text, tuple(steps_of(trace, query)))


def steps_of(trace: Trace, query: Query) -> list[int]:
    scene, groups = Scene(trace), StepGroups(trace)
    steps = groups.number("step")
    found = steps[_holds_of(scene, groups, query.part, steps)]
    for order in reversed(query.orders):
        if order.field in ("step", *NUMBERS):
            keys = groups.number(order.field)[found]
            found = found[np.argsort(-keys if order.down else keys, kind="stable")]
        else:
            found = np.array(_ordered(scene, found.tolist(), order), np.int64)
    chosen: list[int] = found[: query.limit].tolist()
    return chosen


def _holds_of(scene: Scene, groups: StepGroups | None, part: Part | None, steps: Ints) -> Holds:
    """For which of some steps a part of a query holds. Each test runs once for all steps that it cannot distinguish,
    and not for steps that another test decides. ``groups``: None tests each step, without the columns of the whole
    log."""
    if part is None:
        return np.ones(len(steps), bool)
    if isinstance(part, Not):
        return ~_holds_of(scene, groups, part.part, steps)
    if isinstance(part, Every | Some):
        # Tests of groups come first.
        ends = isinstance(part, Some)
        found = np.full(len(steps), not ends)
        for one in sorted(part.parts, key=_takes_each_step):
            left = np.flatnonzero(found != ends)
            found[left] = _holds_of(scene, groups, one, steps[left])
        return found
    if isinstance(part, Compare) and part.sign == "!=":
        return ~_holds_of(scene, groups, Compare(part.field, "=", part.values), steps)
    if groups and isinstance(part, Compare) and part.field in ("step", *NUMBERS):
        return holds(part.sign, part.values, groups.number(part.field)[steps])
    found = np.zeros(len(steps), bool)
    for by, test in _word(scene, part.text) if isinstance(part, Word) else [_compared(scene, part)]:
        if by and groups:
            first, places = groups.examples(by, steps)
            asked = np.zeros(len(first), bool)
            # A node's first step is tested first: it answers for the node in all frames.
            for place in np.argsort(first).tolist():
                asked[place] = test(int(first[place]))
            found |= asked[places]
        else:
            found |= np.fromiter(map(test, steps.tolist()), bool, len(steps))
    return found


def _takes_each_step(part: Part) -> bool:
    if isinstance(part, Not):
        return _takes_each_step(part.part)
    if isinstance(part, Every | Some):
        return any(map(_takes_each_step, part.parts))
    return isinstance(part, Compare) and part.field not in (*OF_NODE, *HANGS_ON, "step", *NUMBERS)


def test_for(trace: Trace, part: Part | None) -> Test:
    """The test of a query's condition on the steps of a trace, which may still grow; orders and limits are left out."""
    scene = Scene(trace)
    return lambda step: bool(_holds_of(scene, None, part, np.array([step]))[0])


def _ordered(scene: Scene, steps: Iterable[int], order: Order) -> list[int]:
    """Steps in the order of a field; those without a value come last."""
    keys = {step: first_of(value_of(scene, order.field, step)) for step in steps}
    known = [step for step, key in keys.items() if key is not None]
    known.sort(key=lambda step: _key(keys[step]), reverse=order.down)
    return known + [step for step, key in keys.items() if key is None]


def _key(value: Any) -> Any:
    """Numbers inside texts count as numbers: layer 2 comes before layer 10."""
    if not isinstance(value, str):
        return value
    chunks = _CHUNKS.findall(value.lower())
    return [(0, float(chunk), "") if chunk[0] in "0123456789" else (1, 0.0, chunk) for chunk in chunks]


# A query as a test of steps.


Test: TypeAlias = Callable[[int], bool]
GroupTest: TypeAlias = tuple[str, Test]
"""The key of the groups that a test depends on (`kvviz.query.step_facts.HANGS_ON`; empty: on the step itself), and the
test."""
Holds: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]

_BUFFER = re.compile(r"b([0-9]{1,15})(?:\.([0-9]{1,15}))?$")
_STEP = re.compile(r"[0-9]{1,15}$")
_LARGER = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}


def _of_nodes(scene: Scene, test: Callable[[int, Node], bool]) -> Test:
    known: dict[int, bool] = {}

    def of_step(step: int) -> bool:
        row = scene.log[step]
        node = row.op.node
        found = known.get(id(node))
        if found is None:
            found = known[id(node)] = test(row.frame, node)
        return found

    return of_step


def _word(scene: Scene, text: str) -> list[GroupTest]:
    word = text.lower()
    buffer = _BUFFER.match(word)
    if buffer:
        wanted = Buffer(int(buffer[1]), -1 if buffer[2] is None else int(buffer[2]))
        return [_compared(scene, Compare("buffer", ":", (wanted,)))]
    tests: list[GroupTest] = [
        ("node", _of_nodes(scene, lambda frame, node: word in short_texts(scene, frame, node))),
        ("run", lambda step: word in scene.called(scene.run(scene.log[step]))),
    ]
    if decision := WORDS.get(word):
        tests.append(("kind", lambda step: decision in endings(scene.trace, scene.log[step])))
    if (code := word.upper()) in BY_NAME["blocker"].choices:
        of_code = _compared(scene, Compare("blocker", "=", (code,)))
        tests.append(of_code)
    if pair := next((name for name in BY_NAME["hazard"].choices if name.lower() == word), ""):
        tests.append(("", lambda step: pair in scene.hazards(step)))
    if _STEP.match(word):
        number = int(word)
        tests.append(("", lambda step: step == number))
    if word.startswith("["):
        tests.append(_compared(scene, Compare("shape", "=", (text,))))
    return tests


def _compared(scene: Scene, part: Compare) -> GroupTest:
    name, sign, values = part.field, part.sign, part.values
    by = "node" if name in OF_NODE else HANGS_ON.get(name, "")
    if name == "decision":
        return by, lambda step: not endings(scene.trace, scene.log[step]).isdisjoint(values)
    if name == "run":
        labels = {str(value).lower() for value in values if isinstance(value, str)}
        numbers = _value_test(name, sign, tuple(value for value in values if not isinstance(value, str)))

        def of_run(step: int) -> bool:
            run = scene.run(scene.log[step])
            return numbers(run) or not labels.isdisjoint(scene.called(run))

        return by, of_run
    test = _value_test(name, sign, values)
    if name in OF_NODE:
        of_node = OF_NODE[name]
        return by, _of_nodes(scene, lambda frame, node: test(of_node(scene, frame, node)))
    of_step = OF_STEP[name]
    return by, lambda step: test(of_step(scene, step, scene.log[step]))


def _value_test(name: str, sign: str, values: tuple[Any, ...]) -> Callable[[Fact], bool]:
    kind = BY_NAME[name].kind
    if kind == "buffer":
        return lambda fact: any(
            storage == value.storage and value.generation in (-1, generation)
            for storage, generation in fact
            for value in values
        )
    if kind in ("number", "bytes", "run"):
        return lambda fact: fact is not None and holds(sign, values, fact)
    matchers = [_matcher(name, sign, str(value)) for value in values]
    return lambda fact: any(matches(text) for text in fact for matches in matchers)


def holds(sign: str, values: tuple[Any, ...], numbers: Any) -> Any:
    """Whether a number, or each of many, matches one of some ranges by a sign."""
    if sign == "!=":
        return ~holds("=", values, numbers)
    compare = _LARGER.get(sign)
    found = ((v.low <= numbers) & (numbers <= v.high) if compare is None else compare(numbers, v.low) for v in values)
    return np.logical_or.reduce(list(found))


def _matcher(name: str, sign: str, value: str) -> Callable[[str], bool]:
    wanted = value.lower()
    if name == "shape":
        wanted = _as_shape(wanted)
    if "*" in wanted:
        pieces = wanted.split("*")
        return lambda text: _fits(pieces, text.lower())
    if BY_NAME[name].kind == "text" and sign == ":":
        return lambda text: wanted in text.lower()
    return lambda text: text.lower() == wanted


def _as_shape(text: str) -> str:
    """``1x4``, ``1, 4`` and ``[1,4]`` in the written form of shapes."""
    inner = "".join(text.split(" ")).removeprefix("[").removesuffix("]").replace("x", ",")
    return f"[{inner}]"


def _fits(pieces: list[str], text: str) -> bool:
    """Whether a text consists of these pieces in order, with anything between them."""
    first, *middle, last = pieces
    if len(text) < len(first) + len(last) or not text.startswith(first) or not text.endswith(last):
        return False
    at, end = len(first), len(text) - len(last)
    for piece in middle:
        found = text.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True
