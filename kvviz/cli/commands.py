"""The commands of the command line."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import kvviz
from kvviz.atomic_write import check_writable, replacing
from kvviz.audit.budget import figures_of, over, read_budget
from kvviz.cli.model_runs import (
    POLICIES,
    arguments_of,
    arrays_of,
    loaded,
    refuse,
    title_of,
    trace_of,
)
from kvviz.cli.proposed_lines import reporting_lengths
from kvviz.cli.results import answer_of, open_page, say, say_written
from kvviz.errors import InputError, KvvizError
from kvviz.graph.loading.load import holds_trace
from kvviz.query.query_reader import read_query
from kvviz.report.faces.report_schema import REPORT_SCHEMA
from kvviz.report.faces.report_text import report_text
from kvviz.report.faces.sarif import sarif
from kvviz.report.faces.steps_table import steps_table
from kvviz.smollm2.gguf_to_onnx import convert
from kvviz.view.export import to_html


def report_command(options: argparse.Namespace) -> int:
    limits = [read_budget(text) for text in options.fail_on or ()]  # before anything is run
    trace = trace_of(options)
    table = steps_table(trace) if options.steps else None
    found = trace.explain()
    if options.json:
        data = found.to_dict()
        print(json.dumps(data if table is None else {**data, "table": table.rows}, indent=1))
    else:
        print(report_text(found))
        if table is not None:
            print("\n" + table.text(len(table)))
    if options.sarif:
        with replacing(options.sarif) as file:
            file.write(json.dumps(sarif(found, options.model), indent=1).encode())
        say_written(options.sarif)
    figures = figures_of(found)
    passed = [sentence for limit in limits if (sentence := over(limit, figures)) is not None]
    for sentence in passed:
        say(f"kvviz: {sentence}")
    return 1 if passed else 0


def schema_command(options: argparse.Namespace) -> int:
    print(json.dumps(REPORT_SCHEMA, indent=1))
    return 0


def html_command(options: argparse.Namespace) -> int:
    path = options.out or f"{title_of(options.model, options.graph)}.html"
    check_writable(path)
    trace = trace_of(options)
    if answer := answer_of(trace):
        print(answer)
    to_html(trace, path)
    say_written(path)
    if options.open:
        open_page(path)
    return 0


def find_command(options: argparse.Namespace) -> int:
    read_query(options.query)  # before anything is run
    trace = trace_of(options)
    found = trace.find(options.query)
    table = found.table()
    if options.json:
        print(json.dumps({"query": options.query, "steps": len(trace.steps), "found": table.rows}, indent=1))
    else:
        print(f"{len(found):,} of {len(trace.steps):,} steps")
        if found:
            print(table.text(len(table)))
    return 0


def compare_command(options: argparse.Namespace) -> int:
    if holds_trace(options.model):
        raise InputError(f"{options.model} is a saved trace, which cannot run under other policies; give the model")
    graph = loaded(options)
    inputs, how = arguments_of(graph, options)
    with reporting_lengths(options.chosen):
        policies = options.policies or POLICIES
        comparison = kvviz.compare(graph, inputs, policies, options.schedules, dry=options.dry, **how)
    if options.json:
        rows = [asdict(row) for row in comparison]
        print(json.dumps({"equal": comparison.equal, "rows": rows}, indent=1))
    else:
        print(comparison)
    if options.figure:
        with replacing(options.figure) as file:
            comparison.plot().savefig(file, format=Path(options.figure).suffix[1:])
        say_written(options.figure)
    return 0


def verify_command(options: argparse.Namespace) -> int:
    if options.html:
        check_writable(options.html)
    graph, inputs = loaded(options), arrays_of(options.inputs)
    found: Any
    if options.prompt is None:
        refuse(options, ("tokens", "binding", "kv_capacity"), "needs --prompt")
        found = kvviz.verify(graph, inputs, profile=options.profile, record=options.record)
    else:
        refuse(options, ("profile", "record"), "is for a single run; leave out --prompt")
        how = {"binding": options.binding, "kv_capacity": options.kv_capacity}
        found = kvviz.verify_decode(graph, options.prompt, options.tokens or 4, inputs, **how)
    if options.html:
        found.to_html(options.html)
        say_written(options.html)
    print(json.dumps(found.to_dict(), indent=1) if options.json else found)
    return 1 if found.differences else 0


def smollm2_command(options: argparse.Namespace) -> int:
    made = convert(options.folder, options.form, options.gguf)
    print(f"wrote {made.model}: {made.nodes:,} nodes, weights of {made.weight_bytes / 1e6:,.1f} MB beside it")
    return 0


def lab_command(options: argparse.Namespace) -> int:
    # The notebooks here, else those of the checkout that kvviz was installed from, else this folder.
    places = [Path("notebooks"), Path(kvviz.__file__).resolve().parent.parent / "notebooks", Path()]
    return open_lab(
        Path(options.folder) if options.folder else next(place for place in places if place.is_dir()), options.rest
    )


def open_lab(folder: Path, rest: Sequence[str] = ()) -> int:
    """Start JupyterLab on a folder; its exit status."""
    if importlib.util.find_spec("jupyterlab") is None:
        raise KvvizError("JupyterLab is not installed; get it with: pip install 'kvviz[lab]'")
    if not folder.is_dir():
        raise KvvizError(f"there is no folder {str(folder)!r}")
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={folder.resolve()}", *rest]
    if (folder / "start.ipynb").exists() and not any(word.startswith("--LabApp.default_url") for word in rest):
        command.append("--LabApp.default_url=/lab/tree/start.ipynb")
    if getattr(os, "getuid", lambda: 1)() == 0:
        command.append("--allow-root")
    return subprocess.run(command).returncode
