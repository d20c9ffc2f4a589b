"""``kvviz audit``: many models at once, beside what they were."""

from __future__ import annotations

import argparse
import json
from contextlib import ExitStack
from typing import Any

import kvviz
from kvviz.audit.audit import FILE
from kvviz.cli.results import say
from kvviz.text import needed


def audit_command(options: argparse.Namespace) -> int:
    how: dict[str, Any] = {"policies": options.policies} if options.policies else {}
    with ExitStack() as stack:
        executor = None
        if options.dask is not None:
            client = needed("distributed", "dask").Client(options.dask, timeout="10s")
            executor = stack.enter_context(client).get_executor()
        try:
            found = kvviz.audit(
                options.paths,
                executor,
                dry=True if options.dry else "auto",
                baseline=options.baseline,
                save=options.folder,
                fail_on=options.fail_on or (),
                jobs=options.jobs,
                timeout=options.timeout,
                fixes=options.fixes,
                cache=options.cache,
                **how,
            )
        except KeyboardInterrupt:
            say("kvviz: the models that are done are kept; the same command goes on from there")
            raise
    if options.folder:
        say(f"wrote {options.folder}/{FILE} and the pages beside it")
    if options.json:
        print(json.dumps(found.table().rows, indent=1))
    else:
        print(found.to_markdown() if options.markdown else found)
    for name, sentence in found.exceeded:
        say(f"kvviz: {name}: {sentence}")
    return 1 if found.exceeded else 0


def add_audit_options(add: Any, positive: Any) -> None:
    """``add``: adds an option to the command's parser; ``positive``: reads a positive number."""
    add("paths", nargs="+", metavar="DIR", help="folders, model files, or URLs that fsspec reads")
    add("--jobs", type=positive, metavar="N", help="worker processes (default: one for each processor)")
    add(
        "--save",
        dest="folder",
        metavar="DIR",
        help="write audit.json, a page, Markdown, JUnit and SARIF to this folder",
    )
    add("--baseline", metavar="FILE", help="an earlier audit.json to compare with")
    limit = "exit with 1 if this holds for a model, such as 'peak>120MB' or 'peak>+5%%'; may be repeated"
    add("--fail-on", action="append", metavar="LIMIT", help=limit)
    add("--dask", metavar="ADDRESS", help="run on the workers of this Dask scheduler, such as host:8786")
    add("--policies", nargs="+", metavar="NAME", help="default: ideal onnxruntime")
    add("--dry", action="store_true", help="work out layouts only (default: for models that need over 1 GB)")
    add("--timeout", type=positive, default=300, metavar="SECONDS", help="time for each model (default: 300)")
    add("--fixes", action="store_true", help="search for the change that helps against each finding")
    add("--cache", metavar="DIR", help="folder of finished rows (default: in the user's folder of caches)")
    add("--markdown", action="store_true", help="print the comment for a pull request")
    add("--json", action="store_true", help="print the table as JSON")
