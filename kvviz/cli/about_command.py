"""``kvviz about``: what a model is, and which command shows it, before anything is run."""

from __future__ import annotations

import argparse
import os
import shlex
from collections import Counter
from collections.abc import Iterator

import kvviz
from kvviz.cli.model_runs import is_saved
from kvviz.decode.model_kind import ModelKind, model_kind
from kvviz.errors import InputError, KvvizError
from kvviz.explain.units import count, short
from kvviz.ggml.open_recording import ENDINGS
from kvviz.graph.cache_pairs import cache_pairs
from kvviz.graph.model import Graph
from kvviz.graph.model_folder import graphs_in, likely

_OPS = 6


def about_command(options: argparse.Namespace) -> int:
    path = options.model
    if is_saved(path) or path.endswith(ENDINGS):
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
    yield "  next: " + shlex.join(_next(path, kind, chosen, words is not None, chats))


def _shape(shape: tuple[int | str | None, ...] | None) -> str:
    return "[…]" if shape is None else f"[{', '.join('?' if dim is None else str(dim) for dim in shape)}]"


def _place(path: str) -> str:
    """A path that is not taken for an option."""
    return os.path.join(os.curdir, path) if path.startswith("-") else path


def _next(path: str, kind: ModelKind, chosen: str | None, words: bool, chats: bool) -> list[str]:
    """The command line that shows this model."""
    line = ["kvviz", "html", _place(path), *(["--graph", chosen] if chosen else [])]
    if kind.needs:
        return [*line, "--prompt", "0"]  # a text would have to come with what the other half made of its input
    if kind.decodes and chats:
        return [*line, "--chat", "What is the capital of France?"]
    if kind.reads_text and words:
        return [*line, "--text", "Once upon a time"]
    return [*line, "--prompt", "5,17,33"] if kind.decodes else line
