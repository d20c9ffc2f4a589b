"""``kvviz demo``: a first example, right after installing."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from typing import Any

from kvviz.atomic_write import check_writable
from kvviz.cli.commands import open_lab
from kvviz.cli.results import open_page, say, say_written
from kvviz.demo.storyteller import BEGINNING, LESSONS, story, unpack_lessons
from kvviz.errors import InputError, KvvizError
from kvviz.trace.recording import Trace
from kvviz.view.export import to_html

_PAGE = "kvviz-demo.html"


def demo_command(options: argparse.Namespace) -> int:
    if options.lab is not None:
        if options.text or options.out:
            raise InputError("--lab opens the lessons; do not give a text or --out with it")
        return _lessons(Path(options.lab or LESSONS))
    path = options.out or _PAGE
    check_writable(path)
    say(f"the page of the story will be {Path(path).resolve()}\n1 of 3: the model tells it")
    trace = story(options.text or BEGINNING, progress=sys.stderr.isatty())
    if trace.interrupted:
        raise KeyboardInterrupt
    print(" ".join(trace.words or ()).replace("<s> ", "").replace(" </s>", ""))
    say("2 of 3: kvviz finds what it cost")
    for entry in trace.explain().verdict:
        print(f"  {entry}")
    say("3 of 3: the page is drawn")
    to_html(trace, path, **_opening(trace))
    say_written(path)
    if options.out is None:
        open_page(path)
    return 0


def _opening(trace: Trace) -> dict[str, Any]:
    """How the page opens: at the start of a guided tour, at a step that appends to a cache. An empty story has none."""
    if len(trace.tokens) < 2:
        return {}
    from kvviz.lessons.quickstart_tour import quickstart_tour  # with the widgets, which no other command needs

    tour = quickstart_tour(trace)
    step = tour.stops[2].step
    assert step is not None
    made = trace.steps[step].outputs
    cache = next(i for i, one in enumerate(trace.caches) if one.output in made)
    return {"tour": tour, "step": step, "selection": {"kind": "cache", "id": cache}}


def _lessons(folder: Path) -> int:
    if importlib.util.find_spec("jupyterlab") is None:
        raise KvvizError("the lessons are notebooks; get JupyterLab with: pip install 'kvviz[lessons]'")
    notebooks = unpack_lessons(folder)
    say(f"the lessons are in {notebooks}")
    return open_lab(notebooks)
