"""``kvviz about``: what a model is, and which command shows it, without running it."""

from __future__ import annotations

import argparse
import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import kvviz
from kvviz.cli.model_runs import TOKENS, text_inputs
from kvviz.decode.model_kind import ModelKind, model_kind
from kvviz.decode.plausible_values import shape_of
from kvviz.decode.run_sessions import SingleRun
from kvviz.decode.synthetic_inputs import generated
from kvviz.decode.token_loop import DecodeSession
from kvviz.errors import InputError, KvvizError
from kvviz.ggml.recording.open_recording import ENDINGS
from kvviz.graph.cache_pairs import cache_pairs, control_inputs
from kvviz.graph.input_roles import index_range
from kvviz.graph.loading.load import holds_trace
from kvviz.graph.loading.model_folder import graphs_in, likely
from kvviz.graph.model import Graph
from kvviz.trace.schema.run_options import DECODE
from kvviz.trace.units import count, short

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
    """A path that is not taken for an option."""
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
