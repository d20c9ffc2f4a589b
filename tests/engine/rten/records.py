"""Recordings of rten: what it planned, ran in place and shared, read from ``tests/data/rten``."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from kvviz.verification.rten_recording import Record, RtenRun, read_recording, room

ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT / "tests" / "data" / "rten"
MODELS = ROOT / "assets" / "models"
# What rten could not load has a recording without runs.
UNLOADED = {"o06_mobius_static_llama_op24"}


@dataclass(frozen=True, slots=True)
class Given:
    """One input of a run: a copy that is lent or given away (``owned``), with room for ``rows`` rows along ``axis``."""

    name: str
    array: np.ndarray
    owned: bool
    axis: int = 0
    rows: int | None = None


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Recording(RtenRun):
    """One run of a graph by rten, with its model.

    ``source``: model or scenario. ``before``: the run before it in the same session. ``stated``, ``expected``: of a
    scenario, its inputs and results as they are written down.
    """

    source: str
    model: Path
    before: Recording | None = None
    stated: tuple[Record, ...] | None = None
    expected: Record | None = None

    @property
    def id(self) -> str:
        """Source, run and mode in one word."""
        return f"{self.source}-{self.run}-{self.mode}"

    @property
    def given(self) -> list[Given]:
        """The inputs, as arrays that nobody else holds."""
        if self.stated is not None:
            return [_stated(item) for item in self.stated]
        arrays = _reference(self.source)
        return [_as_recorded(item, arrays[f"run{self.run}.in.{item['n']}"]) for item in self.inputs]

    @property
    def results(self) -> dict[str, np.ndarray]:
        """What the requested outputs hold: rten's own results of a scenario, the stored outputs of a model."""
        if self.expected is not None:
            return {name: np.reshape(r["values"], r["shape"]) for name, r in self.expected.items()}
        arrays = _reference(self.source)
        return {name: arrays[f"run{self.run}.out.{name}"] for name in self.outputs}


def _stated(item: Record) -> Given:
    array = np.array(item["values"], item["dtype"]).reshape(item["shape"])
    kind, _, room = item["mode"].partition(":")
    axis, _, rows = room.partition(":")
    return Given(item["name"], array, kind != "view", int(axis or 0), int(rows) if rows else None)


def _as_recorded(item: Record, array: np.ndarray) -> Given:
    """A cache that was given away with room has it along axis 2."""
    rows = room(item)
    return Given(item["n"], array.copy(), item["owned"], 0 if rows is None else 2, rows)


def models() -> list[str]:
    """Names of the recorded models; of one that rten could not load there are no runs."""
    return sorted(path.name.removesuffix(".jsonl.gz") for path in DATA.glob("*.jsonl.gz"))


def scenarios() -> list[str]:
    """Names of the scenarios."""
    return sorted(path.stem for path in (DATA / "scenarios").glob("*.onnx"))


@lru_cache(maxsize=2)
def recordings(source: str) -> tuple[Recording, ...]:
    """All runs of a model or a scenario."""
    path = DATA / f"{source}.jsonl.gz"
    return _of_model(source, path) if path.exists() else _of_scenario(source)


def names() -> list[str]:
    """The id of each run, in order, without reading what it says: every test process asks, and few run these tests."""
    found: list[str] = []
    for source in models():
        text = gzip.decompress((DATA / f"{source}.jsonl.gz").read_bytes()).decode()
        runs = dict.fromkeys(re.findall(r'^\{"run":(\d+),"mode":"(\w+)"', text, re.MULTILINE))
        found += [f"{source}-{run}-{mode}" for run, mode in runs]
    return found + [recording.id for source in scenarios() for recording in recordings(source)]


def named(name: str) -> Recording:
    """The run of an id."""
    (found,) = (one for one in recordings(name.split("-")[0]) if one.id == name)
    return found


def all_recordings() -> list[Recording]:
    """All runs of all models and scenarios."""
    return [recording for source in models() + scenarios() for recording in recordings(source)]


def _of_model(source: str, path: Path) -> tuple[Recording, ...]:
    if source in UNLOADED:
        return ()
    model = MODELS / source / "model.onnx"
    return tuple(
        Recording(run.run, run.mode, run.outputs, run.records, source=source, model=model)
        for run in read_recording(path)
    )


def _of_scenario(source: str) -> tuple[Recording, ...]:
    told = json.loads(gzip.decompress((DATA / "scenarios" / f"{source}.json.gz").read_bytes()))
    model = DATA / "scenarios" / f"{source}.onnx"
    found: list[Recording] = []
    for number, run in enumerate(told["runs"]):
        mode = ",".join(sorted({item["mode"] for item in run["inputs"]} - {"view"})) or "views"
        found.append(
            Recording(
                number,
                mode,
                tuple(run["outputs"]),
                tuple(run["trace"]),
                source=source,
                model=model,
                before=found[-1] if run["same_session_as_previous_run"] else None,
                stated=tuple(run["inputs"]),
                expected=run["results"],
            )
        )
    return tuple(found)


@lru_cache(maxsize=2)
def _reference(source: str) -> dict[str, np.ndarray]:
    return dict(np.load(MODELS / source / "ref.npz"))
