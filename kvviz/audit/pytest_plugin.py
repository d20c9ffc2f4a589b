"""pytest's fixture and marker ``kvviz_budget``: limits on what a model costs, as tests.

pytest imports this file at every start, so nothing of kvviz is imported before a test asks for the fixture.

>>> def test_the_decoder_fits(kvviz_budget):                                                # doctest: +SKIP
...     kvviz_budget.assert_peak("model.onnx", below="120MB", policy="onnxruntime")
...     kvviz_budget.assert_no_past_copied("model.onnx")
...     kvviz_budget.assert_kept("model.onnx", "peak>+5%")
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

_OPTIONS = "policy, prompt_tokens, max_new_tokens, dry, memory, timeout"


def pytest_addoption(parser: pytest.Parser) -> None:
    about = "write the figures that tests with kvviz_budget compare with"
    parser.getgroup("kvviz").addoption("--kvviz-update", action="store_true", help=about)
    parser.addini("kvviz_baseline", "file of the figures that kvviz_budget compares with", default="kvviz_budget.json")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"kvviz_budget({_OPTIONS}): how the fixture kvviz_budget runs models")


@pytest.fixture
def kvviz_budget(request: pytest.FixtureRequest) -> Budget:
    """Limits on models; see `Budget`."""
    marker = request.node.get_closest_marker("kvviz_budget")
    config = request.config
    file = config.rootpath / str(config.getini("kvviz_baseline"))
    return Budget(file, config.rootpath, bool(config.getoption("--kvviz-update")), marker.kwargs if marker else {})


class Budget:
    """Assertions on what models cost.

    A model is a path from pytest's root folder, a URL, or a preset, as in `kvviz.audit`. Options of a call prevail over
    those of the marker.
    """

    def __init__(self, file: Path, root: Path, update: bool, options: Mapping[str, Any]) -> None:
        self._file, self._root, self._update, self._options = file, root, update, dict(options)

    def figures(self, model: str | os.PathLike[str], **options: Any) -> dict[str, float]:
        """All figures of a model under a policy, by name. They are also what ``--kvviz-update`` writes."""
        from kvviz.audit.audit_worker import audit_one
        from kvviz.audit.dispatching import cached_row, default_folder, keep_row, row_key

        name = os.fspath(model)
        path = name if "://" in name or name.startswith("shapes:") else str(self._root / name)
        how = {**self._options, **options}
        policy = how.pop("policy", "ideal")
        how["policies"] = [policy]
        try:
            key = row_key(path, how)
        except OSError as error:
            raise AssertionError(f"{name} cannot be read: {error}") from None
        row = cached_row(default_folder(), key)
        if row is None:
            row = audit_one(path, how)
            keep_row(default_folder(), key, row)
        if row["state"] != "done":
            raise AssertionError(f"{name} is not done ({row['state']}): {row['error']}")
        figures: dict[str, float] = row["policies"][policy]["figures"]
        if self._update:
            self._write({**self._baseline(), self._entry(model, policy): figures})
        return figures

    def assert_kept(self, model: str | os.PathLike[str], *limits: str, **options: Any) -> None:
        """Fail if one of the limits is exceeded, such as ``"missed>1MB"`` or ``"peak>+5%"``: growth since
        ``--kvviz-update``."""
        from kvviz.audit.budget import over, read_budget

        read = [read_budget(text) for text in limits]
        figures = self.figures(model, **options)
        policy = {**self._options, **options}.get("policy", "ideal")
        before = self._baseline().get(self._entry(model, policy))
        if before is None and any(limit.growth for limit in read):
            raise AssertionError(f"{self._file} has no figures of {model} under {policy}; run pytest --kvviz-update")
        passed = [sentence for limit in read if (sentence := over(limit, figures, before)) is not None]
        if passed:
            raise AssertionError(f"{model} under {policy}: {'; '.join(passed)}")

    def assert_peak(self, model: str | os.PathLike[str], below: str | int, **options: Any) -> None:
        """Fail unless the largest number of live bytes is less than ``below``, such as ``"120MB"``."""
        self.assert_kept(model, f"peak>={below}", **options)

    def assert_no_past_copied(self, model: str | os.PathLike[str], **options: Any) -> None:
        """Fail if rows of a cache were copied to make it longer."""
        self.assert_kept(model, "past_copied>0", **options)

    def _entry(self, model: str | os.PathLike[str], policy: str) -> str:
        return f"{os.fspath(model)} | {policy}"

    def _baseline(self) -> dict[str, dict[str, float]]:
        return json.loads(self._file.read_text("utf-8")) if self._file.exists() else {}

    def _write(self, figures: Mapping[str, Any]) -> None:
        self._file.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n", "utf-8")
