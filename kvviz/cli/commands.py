"""The commands of the command line."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import kvviz
from kvviz.atomic_write import check_writable, replacing, write_text
from kvviz.audit.budget import figures_of, over, read_budget
from kvviz.cli.model_runs import (
    POLICIES,
    TOKENS,
    arguments_of,
    arrays_of,
    loaded,
    refuse,
    text_inputs,
    title_of,
    trace_of,
)
from kvviz.cli.results import answer_of, open_page, reporting_lengths, say, say_written
from kvviz.decode.model_kind import ModelKind, model_kind
from kvviz.decode.plausible_values import shape_of
from kvviz.decode.run_sessions import SingleRun
from kvviz.decode.synthetic_inputs import generated
from kvviz.decode.token_loop import DecodeSession
from kvviz.demo.storyteller import BEGINNING, LESSONS, story, unpack_lessons
from kvviz.errors import InputError, KvvizError
from kvviz.ggml.recording.open_recording import ENDINGS
from kvviz.graph.cache_pairs import cache_pairs, control_inputs
from kvviz.graph.input_roles import index_range
from kvviz.graph.loading.load import holds_trace
from kvviz.graph.loading.model_folder import graphs_in, likely
from kvviz.graph.model import Graph
from kvviz.query.query_reader import read_query
from kvviz.report.faces.report_data import sarif
from kvviz.report.faces.report_schema import REPORT_SCHEMA
from kvviz.report.faces.report_text import report_text
from kvviz.report.faces.steps_table import steps_table
from kvviz.smollm2.gguf_to_onnx import convert
from kvviz.trace.recording import Trace
from kvviz.trace.schema.run_options import DECODE
from kvviz.trace.units import count, short
from kvviz.view.charts.finding_picture import PICTURE_FORMS, picture
from kvviz.view.export import to_html

_OPS = 6
_QUESTION, _STORY = "What is the capital of France?", "Once upon a time"
_NUMBERS = (5, 17, 33)
_LONGEST = 64  # numbers in a command line


def about_command(options: argparse.Namespace) -> int:
    path = options.model
    if holds_trace(path) or path.endswith(ENDINGS):
        raise InputError(f"{path} is a recording, not a model; show it with: kvviz report {shlex.quote(path)}")
    files = graphs_in(path) if os.path.isdir(path) and options.graph is None else ()
    if len(files) < 2:
        print("\n".join(_whole(path, kvviz.load(path, graph=options.graph), options.graph)))
        return 0
    print(f"{path}: {count(len(files), 'graph')}; choose one with --graph")
    read = []
    for file in files:
        try:
            graph = kvviz.load(path, graph=file)
            print(f"  {file}: {model_kind(graph).name}, {count(len(graph.nodes), 'node')}")
            read.append(file)
        except KvvizError as error:
            print(f"  {file}: {error}")
    if read:
        print("  next: " + shlex.join(["kvviz", "about", _place(path), "--graph", likely(read)]))
    return 0


def _whole(path: str, graph: Graph, chosen: str | None) -> Iterator[str]:
    kind, pairs = model_kind(graph), cache_pairs(graph)
    yield f"{path}: {kind.name}"
    ops = Counter(node.qualified_op for _, node in graph.walk())
    yield f"  {count(sum(ops.values()), 'node')}: " + ", ".join(f"{op} {n:,}" for op, n in ops.most_common(_OPS)) + " …"
    caches = {pair.input for pair in pairs}
    for what, values in (("in", graph.inputs), ("out", graph.outputs)):
        shown = [v for v in values if v.name not in caches and v.name not in {pair.output for pair in pairs}]
        yield f"  {what}: " + ", ".join(f"{short(v.name)} {_shape(v.shape)}" for v in shown)
    if pairs:
        kinds = Counter(pair.protocol for pair in pairs)
        yield "  caches: " + ", ".join(f"{times} {protocol}" for protocol, times in kinds.items())
    if kind.decodes and all(pair.protocol == "cross" for pair in pairs):
        yield "  no cache: every run computes all tokens again"
    words, chats = None, False
    try:
        words = None if graph.companions is None else graph.companions.tokenizer
        if words is not None:
            settings = getattr(words, "settings", None)
            chats = bool(settings is not None and settings.template)
            ends = ", ".join(f"{words.decode([end])} ({end})" for end in words.stop_tokens)
            yield f"  tokenizer: end-of-text tokens {ends or 'none'}; {'a' if chats else 'no'} chat template"
    except KvvizError as error:
        yield f"  tokenizer: {error}"
    yield "  next: " + _next(path, graph, kind, chosen, words is not None, chats)


def _shape(shape: tuple[int | str | None, ...] | None) -> str:
    return "[…]" if shape is None else f"[{', '.join('?' if dim is None else str(dim) for dim in shape)}]"


def _place(path: str) -> str:
    return os.path.join(os.curdir, path) if path.startswith("-") else path


def _next(path: str, graph: Graph, kind: ModelKind, chosen: str | None, words: bool, chats: bool) -> str:
    """The command line that shows this model, or why it needs the user's own inputs. Each candidate is prepared as the
    command does it, up to the first op, and the first one that succeeds is proposed."""
    line = ["kvviz", "html", _place(path), *(["--graph", chosen] if chosen else [])]
    for options, prepare in _ways(graph, kind, words, chats):
        try:
            prepare()
        except KvvizError as error:
            why = str(error)
        else:
            return shlex.join([*line, *options])
    return f"run it with your own inputs (--inputs FILE): {why}"


def _ways(
    graph: Graph, kind: ModelKind, words: bool, chats: bool
) -> Iterator[tuple[list[str], Callable[[], DecodeSession | SingleRun]]]:
    """Options to show a model with, the most informative first, and a function that prepares a run with them."""
    prompts: list[tuple[str, str, Any]] = []
    # With an encoder, a text would also need the encoder's output.
    if kind.decodes and chats and not kind.needs:
        prompts.append(("--chat", _QUESTION, lambda: graph.chat(_QUESTION)))
    if kind.decodes and words and not kind.needs:
        prompts.append(("--text", _STORY, lambda: _STORY))
    for numbers in _prompts(graph, kind) if kind.decodes else ():
        prompts.append(("--prompt", ",".join(map(str, numbers)), lambda numbers=numbers: numbers))
    for option, shown, prompt in prompts:
        for tokens in range(TOKENS, 0, -1):
            few = [] if tokens == TOKENS else ["--tokens", str(tokens)]
            yield [option, shown, *few], partial(_decoding, graph, prompt, tokens)
    if words and kind.reads_text and not kind.decodes:
        yield ["--text", _STORY], partial(_once, graph, _STORY)
    yield [], partial(_once, graph, None)


def _prompts(graph: Graph, kind: ModelKind) -> list[list[int]]:
    """Prompts of token numbers within a model's vocabulary: a few, one, and as many as a run takes."""
    name = control_inputs(graph)["tokens"]
    known = index_range(graph, name, shape_of)
    few = [token for token in _NUMBERS if known is None or known.low <= token < known.high]
    few = [0] if kind.needs else few or [known.low if known else 0]
    shape = next(value.shape for value in graph.inputs if value.name == name)
    size = shape[-1] if shape and isinstance(shape[-1], int) else 1
    return [few, few[:1], (few * size)[:size]] if 0 < size <= _LONGEST else [few, few[:1]]


def _decoding(graph: Graph, prompt: Callable[[], Any], tokens: int) -> DecodeSession:
    inputs = generated(graph, {}, {}, decoding=1)
    session = DecodeSession(graph, prompt(), replace(DECODE, max_new_tokens=tokens), inputs, record=False)
    session.next_run()
    return session


def _once(graph: Graph, text: str | None) -> SingleRun:
    inputs = generated(graph, {}, {} if text is None else text_inputs(graph, text))
    return SingleRun(graph, inputs, record=False)


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
    if options.open_at:
        read_query(options.open_at)  # before anything is run
    trace = trace_of(options)
    if answer := answer_of(trace):
        print(answer)
    to_html(trace, path, open_at=options.open_at, values=options.values)
    say_written(path)
    if options.open:
        open_page(path)
    return 0


def picture_command(options: argparse.Namespace) -> int:
    base = f"{title_of(options.model, options.graph)}-finding-{options.finding}"
    paths = [options.out] if options.out else [f"{base}{form}" for form in PICTURE_FORMS]
    for path in paths:
        check_writable(path)
    made = picture(trace_of(options), options.finding, dark=options.dark)
    for path in paths:
        made.save(path)
        say_written(path)
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
    # The notebooks here, else the lessons of the checkout that kvviz was installed from, else this folder.
    checkout = Path(kvviz.__file__).resolve().parent.parent / "notebooks"
    places = [Path("notebooks"), checkout, Path()]
    folder = Path(options.folder) if options.folder else next(place for place in places if place.is_dir())
    return open_lab(unpack_lessons(folder) if folder.resolve() == checkout else folder, options.rest)


def open_lab(folder: Path, rest: Sequence[str] = ()) -> int:
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


_PAGE, LESSON_PAGE = "kvviz-demo.html", "kvviz-lesson.html"


def demo_command(options: argparse.Namespace) -> int:
    given = [name for name in ("lab", "lesson", "score", "out") if getattr(options, name) is not None]
    if len(given) > 1:
        raise InputError(f"--{given[0]} and --{given[1]} are two different things; give one of them")
    if options.score:
        return _scores(options.score, options.text)
    if options.lab is not None:
        if options.text:
            raise InputError("--lab opens the lessons; do not give a text with it")
        return _lessons(Path(options.lab or LESSONS))
    if options.lesson is not None:
        return _lesson_page(options.lesson, options.text or BEGINNING)
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


def _lesson_page(path: str, beginning: str) -> int:
    from kvviz.demo.lesson_page import lesson_page  # with the widgets, as above

    check_writable(path)
    say(f"the story is decoded three times: with a cache, without one, and with reserved room; then {path} is written")
    write_text(path, lesson_page(beginning))
    say_written(path)
    return 0


def _scores(codes: Sequence[str], text: str | None) -> int:
    from kvviz.lessons.questions.score import read_score

    if text:
        raise InputError("--score takes the codes that students hand in, and no text")
    for code in codes:
        print(f"{code}  {read_score(code)}")
    return 0


def _lessons(folder: Path) -> int:
    if importlib.util.find_spec("jupyterlab") is None:
        raise KvvizError("the lessons are notebooks; get JupyterLab with: pip install 'kvviz[lessons]'")
    notebooks = unpack_lessons(folder)
    say(f"the lessons are in {notebooks}")
    return open_lab(notebooks)
