"""A user's cache, stepped line by line: which rows each line writes, reads and copies.

The code runs once, on arrays that note every access; nothing is guessed from its text.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from textwrap import dedent
from typing import Any

import numpy as np

from kvviz.errors import KvvizError
from kvviz.lessons.stepping import Cell, Frame, Group, Stepping

_MOST = 400  # lines that are stepped through
_JOINS = (np.vstack, np.concatenate, np.append)
_DONE = {"new": "writes", "copied": "copies", "read": "reads"}

Touch = tuple[str, str, tuple[int, ...]]
"""A cache, and what was done to which of its rows: a state of a cell."""


class WatchedRows(np.ndarray):
    """A cache that notes which of its rows are written, read, or copied to a new array. Results are plain arrays."""

    _cache: str
    _held: np.ndarray  # the numbers of its rows, also in a view of it
    _log: list[Touch]

    def __array_finalize__(self, given: Any) -> None:
        for name in ("_cache", "_held", "_log"):
            if hasattr(given, name):
                setattr(self, name, getattr(given, name))

    def _note(self, what: str, rows: np.ndarray | None = None) -> None:
        if touched := sorted({int(row) for row in (self._held if rows is None else rows)}):
            self._log.append((self._cache, what, tuple(touched)))

    def _rows(self, key: Any) -> np.ndarray:
        """The rows that an index selects; all of them if the first axis is not that of the rows."""
        first = key[0] if isinstance(key, tuple) else key
        whole = first is None or first is Ellipsis or len(self) != len(self._held)
        return self._held if whole else np.atleast_1d(self._held[first])

    def __iter__(self) -> Iterator[Any]:
        return (self[at] for at in range(len(self)))

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        if isinstance(found, WatchedRows):
            found._held = self._rows(key)
        else:
            self._note("read", self._rows(key))
        return found

    def __setitem__(self, key: Any, value: Any) -> None:
        self._note("new", self._rows(key))
        self.view(np.ndarray)[key] = _plain(value)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **how: Any) -> Any:
        for one in inputs:
            if isinstance(one, WatchedRows):
                one._note("read")
        for one in how.get("out", ()):
            if isinstance(one, WatchedRows):
                one._note("new")
        return getattr(ufunc, method)(*map(_plain, inputs), **{name: _plain(value) for name, value in how.items()})

    def __array_function__(self, function: Any, types: Any, arguments: Any, how: Any) -> Any:
        watched = list(_found(arguments))
        joins = function in _JOINS and watched
        for one in watched:
            one._note("copied" if joins else "read")
        made = function(*map(_plain, arguments), **{name: _plain(value) for name, value in how.items()})
        if not joins:
            return made
        # The longer array is the cache from now on; rows after its old ones are new.
        grown = watch(made, watched[0]._cache, watched[0]._log)
        grown._note("new", np.arange(len(watched[0]), len(made)))
        return grown


def watch(array: np.ndarray, name: str, log: list[Touch]) -> WatchedRows:
    made = np.asarray(array).view(WatchedRows)
    made._cache, made._held, made._log = name, np.arange(len(array)), log
    return made


def _plain(value: Any) -> Any:
    if isinstance(value, WatchedRows):
        return value.view(np.ndarray)
    return type(value)(map(_plain, value)) if type(value) in (list, tuple) else value


def _found(value: Any) -> Iterator[WatchedRows]:
    if isinstance(value, WatchedRows):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _found(one)


def step_code(
    step: Callable[[Any, Any], tuple[Any, Any]],
    tokens: Iterable[Any],
    cache: Sequence[Any],
    *,
    names: Sequence[str] = ("K", "V"),
    also: Sequence[Callable[..., Any]] = (),
    words: Sequence[str] = (),
) -> Stepping:
    """Run a cache over some tokens, and step through it line by line, beside the rows that each line touches.

    ``step``: a function of the newest token and the cache; returns the output and the cache for the next token.
    ``tokens``: its first arguments, one after another.
    ``cache``: the first cache: arrays of rows, and anything else.
    ``names``: of the arrays in it.
    ``also``: functions that ``step`` calls and that are shown, too.
    ``words``: of the tokens, for the captions.

    Raises `KvvizError`: if the source is not available, more than 400 lines run, or the code fails.
    """
    shown = [step, *also]
    try:
        sources = [dedent(inspect.getsource(one)).rstrip().splitlines() for one in shown]
    except (OSError, TypeError) as error:
        raise KvvizError(f"the code of {getattr(step, '__name__', step)} is not there to be shown: {error}") from None
    log: list[Touch] = []
    left = iter(names)
    held: Any = tuple(watch(one, next(left, "?"), log) if isinstance(one, np.ndarray) else one for one in cache)
    lines = _run(shown, step, tokens, held, log)
    # The number of rows before the first line, and at any time.
    sizes = dict(zip(names, (len(one) for one in cache if isinstance(one, np.ndarray))))
    touched_rows = (max(rows) for _, _, _, touched in lines for _, _, rows in touched)
    most = max([*sizes.values(), *(row + 1 for row in touched_rows)], default=0)
    groups = [Group("", "code", source) for source in sources]
    groups += [Group(f"rows of {name}", "rows", [str(row) for row in range(most)]) for name in sizes]
    known = {name: ["room"] * size + [""] * (most - size) for name, size in sizes.items()}
    frames = []
    for token, function, line, touched in lines:
        cells: list[list[Cell]] = [
            [Cell("now" if (i, at) == (function, line) else "") for at in range(len(source))]
            for i, source in enumerate(sources)
        ]
        now = {name: list(states) for name, states in known.items()}
        # The last access is shown.
        for name, what, rows_touched in sorted(touched, key=lambda touch: ("read", "copied", "new").index(touch[1])):
            for row in rows_touched:
                now[name][row] = what
                if what == "new":
                    known[name][row] = "held"
        cells += [[Cell(state) for state in now[name]] for name in sizes]
        done = "; ".join(f"{_DONE[what]} {_spell(rows_touched)} of {name}" for name, what, rows_touched in touched)
        word = f"“{words[token]}”" if token < len(words) else f"token {token}"
        frames.append(Frame(f"{word}: {sources[function][line].strip()}{f'  → {done}' if done else ''}", cells))
    legend = {
        "new": "written",
        "read": "read",
        "copied": "copied to a new array",
        "held": "holds a row",
        "room": "free",
    }
    used = {cell.state for frame in frames for cells in frame.cells for cell in cells}
    title = f"{getattr(step, '__name__', 'the cache')}, line by line"
    return Stepping(title, groups, frames, {state: text for state, text in legend.items() if state in used})


def _run(
    shown: Sequence[Callable[..., Any]],
    step: Callable[[Any, Any], Any],
    tokens: Iterable[Any],
    held: Any,
    log: list[Touch],
) -> list[tuple[int, int, int, list[Touch]]]:
    """The lines that ran: token, function, line of it, and what was touched until the next line."""
    codes = {one.__code__: i for i, one in enumerate(shown)}
    firsts = [inspect.getsourcelines(one)[1] for one in shown]
    lines: list[tuple[int, int, int, list[Touch]]] = []
    at = 0

    def settle() -> None:
        if lines:
            lines[-1][3].extend(log)
        log.clear()

    def line(frame: Any, event: str, argument: Any) -> Any:
        settle()
        if event == "line":
            if len(lines) >= _MOST:
                raise KvvizError(f"the code runs more than {_MOST} lines; give it fewer tokens")
            function = codes[frame.f_code]
            lines.append((at, function, frame.f_lineno - max(firsts[function], 1), []))
        return line

    before = sys.gettrace()
    sys.settrace(lambda frame, event, argument: line if frame.f_code in codes else None)
    try:
        for token in tokens:
            _, held = step(token, held)
            settle()
            at += 1
    except KvvizError:
        raise
    except Exception as error:
        raise KvvizError(f"the code fails at token {at}: {type(error).__name__}: {error}") from error
    finally:
        sys.settrace(before)
    return lines


def _spell(rows: tuple[int, ...]) -> str:
    whole = len(rows) > 1 and rows == tuple(range(rows[0], rows[-1] + 1))
    return f"rows {rows[0]} to {rows[-1]}" if whole else f"row{'s' * (len(rows) > 1)} {', '.join(map(str, rows))}"
