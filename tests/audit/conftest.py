"""Dask is an extra: without it, its tests are left out, and the head of the run says so."""

from __future__ import annotations

from importlib.util import find_spec

WITHOUT_DASK = find_spec("distributed") is None
collect_ignore = ["test_dask_cluster.py"] if WITHOUT_DASK else []


def pytest_report_header() -> str:
    return "tests/audit/test_dask_cluster.py is left out, because distributed is not installed" * WITHOUT_DASK
