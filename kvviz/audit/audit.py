"""`kvviz.audit`: many models, on any executor, compared with an earlier audit."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from kvviz.atomic_write import write_text
from kvviz.audit.audit_faces import audit_junit, audit_markdown, audit_page, audit_sarif, page_name
from kvviz.audit.audit_rows import AuditRow, ModelChange, changes_of, exceeded, row_from, rows_table
from kvviz.audit.audit_worker import SHAPES
from kvviz.audit.budget import read_budget
from kvviz.audit.dispatching import default_folder, finished
from kvviz.audit.model_files import model_paths
from kvviz.errors import InputError
from kvviz.other_names import with_other_names
from kvviz.report.faces.steps_table import Table
from kvviz.runtimes.named_policies import find_policy
from kvviz.trace.units import count
from kvviz.version import VERSION

_SCHEMA = {"name": "kvviz-audit", "version": 1}
FILE = "audit.json"


@dataclass(frozen=True, repr=False)
class Audit:
    """The costs of many models; displayed as a table.

    Attributes
    ----------
    rows : tuple of AuditRow
        Sorted by name.
    baseline : Audit or None
        An earlier audit that the faces compare with.
    limits : tuple of str
        Such as ``"peak>120MB"``, ``"copied_per_token>0"``, or ``"peak>+5%"``: growth since the baseline.
    """

    rows: tuple[AuditRow, ...]
    baseline: Audit | None = None
    limits: tuple[str, ...] = ()

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Audit:
        """Read an audit from its file, or from the folder that it was saved to.

        Raises `InputError`: if the file is not an audit that this version can read.
        """
        file = Path(path, FILE) if Path(path).is_dir() else Path(path)
        try:
            data = json.loads(file.read_text("utf-8"))
            schema, rows = data["schema"], data["rows"]
        except (ValueError, KeyError, TypeError):
            raise InputError(f"{file} is not an audit, as kvviz audit --save writes it") from None
        if schema != _SCHEMA:
            raise InputError(f"{file} has version {schema.get('version')} of the format; this kvviz reads version 1")
        return cls(tuple(row_from(row["name"], row) for row in rows))

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[AuditRow]:
        return iter(self.rows)

    def __getitem__(self, key: int | str) -> AuditRow:
        return self.rows[key] if isinstance(key, int) else {row.name: row for row in self.rows}[key]

    @property
    def summary(self) -> str:
        """Counts of models by state, and how many came from the cache."""
        states = [row.state for row in self.rows]
        parts = [count(len(states), "model")]
        parts += [f"{states.count(state)} {state}" for state in dict.fromkeys(states) if state != "done"]
        cached = sum(row.cached for row in self.rows)
        return ", ".join(parts + ([f"{cached} from the cache"] if cached else []))

    def table(self) -> Table:
        """One line for each model and policy, with peak, bytes allocated, copied and missed."""
        return rows_table(self.rows, f"Audit: {self.summary}")

    def to_pandas(self) -> Any:
        """The table as a ``pandas.DataFrame``. Raises `KvvizError`: if pandas is not installed."""
        return self.table().to_pandas()

    def to_arrow(self) -> Any:
        """The table as a ``pyarrow.Table``. Raises `KvvizError`: if pyarrow is not installed."""
        return self.table().to_arrow()

    def difference(self, baseline: Audit | str | os.PathLike[str]) -> tuple[ModelChange, ...]:
        """What changed in every model since an earlier audit, or since another version of the same models."""
        earlier = baseline if isinstance(baseline, Audit) else Audit.load(baseline)
        return changes_of(self.rows, earlier.rows)

    @cached_property
    def changes(self) -> tuple[ModelChange, ...]:
        """The difference from ``baseline``; empty without one."""
        return () if self.baseline is None else self.difference(self.baseline)

    @property
    def versions(self) -> str:
        """A sentence if the baseline was made by another version of kvviz or onnx; else empty."""
        mine, other = ({(row.kvviz, row.onnx) for row in each if row.done} for each in (self.rows, self.baseline or ()))
        if not other or mine == other:
            return ""
        named = " and ".join(f"kvviz {kvviz} with onnx {onnx}" for kvviz, onnx in sorted(other))
        return f"The baseline was made by {named}, so a difference may come from there."

    @property
    def exceeded(self) -> list[tuple[str, str]]:
        """Model and sentence for every limit that is exceeded. A model that is not done exceeds every limit."""
        earlier = () if self.baseline is None else self.baseline.rows
        return exceeded(self.rows, earlier, [read_budget(text) for text in self.limits])

    def to_markdown(self) -> str:
        """A comment for a pull request: exceeded limits, what changed, and all figures folded away."""
        return audit_markdown(self.rows, self.changes, self.exceeded, self.summary, self.versions)

    def to_junit(self) -> str:
        """JUnit's XML: a test case for each model, which fails for each exceeded limit."""
        return audit_junit(self.rows, self.exceeded)

    def to_sarif(self) -> dict[str, Any]:
        """The findings of all models as SARIF 2.1.0."""
        return audit_sarif(self.rows)

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """One page that needs no network: a table to sort and search, a curve for each model.

        The models' own pages are links to ``pages/``, where `save` puts them.
        """
        page = audit_page(self.rows, self.changes, self.summary, self.versions)
        if path is not None:
            write_text(path, page)
        return page

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write ``audit.json``, ``index.html``, ``audit.md``, ``junit.xml``, ``audit.sarif`` and the models' pages.

        Returns the path of ``audit.json``, which a later audit takes as its baseline.
        """
        root = Path(folder)
        (root / "pages").mkdir(parents=True, exist_ok=True)
        for row in self.rows:
            if row.page:
                write_text(root / "pages" / page_name(row.name), row.page)
        rows = [{key: value for key, value in asdict(row).items() if key != "page"} for row in self.rows]
        self.to_html(root / "index.html")
        write_text(root / "audit.md", self.to_markdown())
        write_text(root / "junit.xml", self.to_junit())
        write_text(root / "audit.sarif", json.dumps(self.to_sarif(), indent=1))
        write_text(root / FILE, json.dumps({"schema": _SCHEMA, "kvviz": VERSION, "rows": rows}))
        return root / FILE

    def __repr__(self) -> str:
        return f"{self.summary}\n{self.table().text()}"

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


@with_other_names
def audit(
    paths: Any,
    executor: Any = None,
    policies: Sequence[str] = ("ideal", "onnxruntime"),
    dry: bool | str = "auto",
    baseline: Audit | str | os.PathLike[str] | None = None,
    save: str | os.PathLike[str] | None = None,
    *,
    fail_on: str | Sequence[str] = (),
    jobs: int | None = None,
    timeout: float | None = 300.0,
    memory: int = 1_000_000_000,
    prompt_tokens: int = 8,
    max_new_tokens: int = 4,
    fixes: bool = False,
    cache: str | os.PathLike[str] | None = None,
    on_row: Callable[[AuditRow], object] | None = None,
    progress: bool = True,
) -> Audit:
    """Run many models under several policies, and compare them with an earlier audit.

    A decoder decodes a short prompt; any other model runs once, on inputs made from shapes. A model that fails, takes
    too long or kills its worker is a row, too. Rows are kept on the disk: an unchanged model is not run again, and an
    interrupted audit continues.

    Parameters
    ----------
    paths : path, URL, or sequence of these
        Files, or folders with ``.onnx`` and ``.gguf`` files at any depth. URLs are read with fsspec, by the workers,
        too. ``"shapes:llama-3-8b?form=gqa"`` is a graph from `kvviz.shapes.preset`.
    executor : executor, optional
        Anything with ``submit``: threads, processes, loky, or ``client.get_executor()`` of Dask for several machines.
        By default ``jobs`` processes, as many as there are processors. A script needs ``if __name__ == "__main__":``.
    policies : sequence of str
    dry : bool or ``"auto"``
        True: work out layouts only, and read no weight. ``"auto"``: for models that need more than ``memory``.
    baseline : Audit or path, optional
        An earlier audit to compare with, or one of another version of the same models.
    save : path, optional
        Folder to write the audit to, with a page for each model; see `Audit.save`.
    fail_on : str or sequence of str
        Limits, on figures such as ``"peak>120MB"`` or on their growth such as ``"peak>+5%"``; see `Audit.exceeded`.
    timeout : float, optional
        Seconds for each model.
    memory : int
        Bytes that one model may take in a worker. A dry run states what it needs before any weight is read.
    prompt_tokens, max_new_tokens : int
        Lengths of a decode.
    fixes : bool
        Also search for the change that helps most against each finding, which takes seconds per model.
    cache : path, optional
        Folder of finished rows; ``kvviz/audit`` in the user's folder of caches by default.
    on_row : callable, optional
        Called with each `AuditRow` as it is done.

    Returns
    -------
    Audit

    Raises
    ------
    InputError
        There is no model, or a limit on growth without a baseline.

    Examples
    --------
    >>> found = kvviz.audit("models/", baseline="last-week/audit.json", fail_on="peak>+5%") # doctest: +SKIP
    >>> found.exceeded                                                                      # doctest: +SKIP
    [('tiny/model.onnx', 'under onnxruntime, peak changed from 1.0 MB to 1.2 MB (+20.0%), so …')]
    """
    from tqdm.auto import tqdm

    policies = [policies] if isinstance(policies, str) else list(policies)
    for policy in policies:
        find_policy(policy)
    if dry not in (True, False, "auto"):
        raise InputError(f"dry is True, False or 'auto', not {dry!r}")
    limits = (fail_on,) if isinstance(fail_on, str) else tuple(fail_on)
    if any(read_budget(text).growth for text in limits) and baseline is None:
        raise InputError("a limit on growth, such as peak>+5%, needs a baseline")
    earlier = Audit.load(baseline) if isinstance(baseline, (str, os.PathLike)) else baseline
    lengths = {"prompt_tokens": prompt_tokens, "max_new_tokens": max_new_tokens}
    how = {"memory": memory, "timeout": timeout, "fixes": fixes, "page": save is not None}
    options: dict[str, Any] = {"policies": policies, "dry": dry, **lengths, **how}
    names, folder = _named(paths), default_folder() if cache is None else Path(cache)
    rows: dict[str, AuditRow] = {}
    with tqdm(total=len(names), unit="model", disable=not progress) as bar:
        for name, data, kept in finished(names, options, folder, executor, jobs):
            rows[name] = row = row_from(name, {**data, "path": names[name]}, kept)
            bar.set_postfix_str(name if row.done else f"{name}: {row.state}", refresh=False)
            bar.update()
            if on_row is not None:
                on_row(row)
    found = Audit(tuple(rows[name] for name in sorted(rows)), earlier, limits)
    if save is not None:
        found.save(save)
    return found


def _named(paths: Any) -> dict[str, str]:
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    made = {path: path for path in given if isinstance(path, str) and path.startswith(SHAPES)}
    files = [path for path in given if path not in made]
    return made | (model_paths(files) if files or not made else {})
