"""Traces for the commands: read from a file, or made by running a model with the options."""

from __future__ import annotations

import argparse
import json
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import kvviz
from kvviz.cli.results import blame, proposed, reporting_lengths, say_written, with_options, without_text
from kvviz.decode.model_kind import model_kind
from kvviz.decode.synthetic_inputs import Maker
from kvviz.errors import InputError
from kvviz.ggml.recording.open_recording import ENDINGS
from kvviz.graph.cache_pairs import cache_pairs, control_inputs
from kvviz.graph.loading.load import holds_trace
from kvviz.graph.loading.model_folder import SeveralGraphsError
from kvviz.graph.model import Graph
from kvviz.view.perfetto import export_perfetto

TOKENS = 16
POLICIES = ("ideal", "rten", "onnxruntime")
# Options that have no meaning for a saved trace, or for the other kind of run.
_FOR_DECODE = ("tokens", "words")
_FOR_ONE_RUN = ("donate", "donate_caches", "output")
_OWN_CACHES = "is for a single run; a decode always donates its caches"
_FOR_RUNNING = (
    "graph",
    "inputs",
    "dim",
    "prompt",
    "text",
    "chat",
    "policy",
    "kv_capacity",
    "dry",
    "prompt_tokens",
    *_FOR_DECODE,
    *_FOR_ONE_RUN,
)


def trace_of(options: argparse.Namespace) -> Any:
    """The trace of a command: read from a file, of kvviz or ggml, or made by running the model."""
    if holds_trace(options.model):
        refuse(options, _FOR_RUNNING, f"cannot be used here: {options.model} is a saved trace, so nothing runs")
        trace = kvviz.Trace.load(options.model)
    elif options.model.endswith(ENDINGS):
        refuse(options, _FOR_RUNNING, f"cannot be used here: {options.model} is a recording, so nothing runs")
        trace = kvviz.ggml.load(options.model).trace
    else:
        graph = loaded(options)
        inputs, how = arguments_of(graph, options)
        make = kvviz.dry if options.dry else kvviz.decode if decodes(graph, options) else kvviz.run
        with reporting_lengths(options.chosen):
            trace = make(graph, inputs=inputs, policy=options.policy or "ideal", **how)
        trace.title = title_of(options.model, options.graph) + (", dry run" if trace.dry else "")
        if trace.interrupted:
            raise KeyboardInterrupt
    if options.save:
        trace.save(options.save)
        say_written(options.save)
    if options.perfetto:
        export_perfetto(trace, options.perfetto)
        say_written(options.perfetto)
    return trace


def loaded(options: argparse.Namespace) -> Graph:
    try:
        return kvviz.load(options.model, graph=options.graph)
    except SeveralGraphsError as error:
        line = with_options(options.line, "--graph", error.likely)
        raise InputError(proposed(str(error), line)) from None


def decodes(graph: Graph, options: argparse.Namespace) -> bool:
    """Whether to decode tokens. A model that reads text but does not decode runs once on it."""
    if options.prompt is not None or options.chat is not None:
        return True
    if options.text is None or options.words is not None:
        return options.text is not None
    kind = model_kind(graph)
    return kind.decodes or not kind.reads_text


def arguments_of(graph: Graph, options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    if options.dry:
        return dry_arguments(graph, options)
    refuse(options, ("prompt_tokens",), "counts the tokens of a dry run; give --dry too, or the tokens with --prompt")
    return decode_arguments(graph, options) if decodes(graph, options) else run_arguments(graph, options)


def dry_arguments(graph: Graph, options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    refuse(options, ("prompt", "text", "chat", "words"), "has no use in a dry run; give --prompt-tokens N")
    if options.prompt_tokens is None:
        refuse(options, ("tokens", "kv_capacity"), "needs --prompt-tokens")
    else:
        refuse(options, _FOR_ONE_RUN, _OWN_CACHES)
    caches = [pair.input for pair in cache_pairs(graph) if pair.protocol != "cross"] if options.donate_caches else []
    options.chosen = {}
    return arrays_of(options.inputs), {
        "prompt_tokens": options.prompt_tokens,
        "max_new_tokens": options.tokens or TOKENS,
        "dims": _lengths(options),
        "kv_capacity": options.kv_capacity,
        "donate": tuple(dict.fromkeys((*(options.donate or ()), *caches))),
        "outputs": options.output,
    }


def decode_arguments(graph: Graph, options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    refuse(options, _FOR_ONE_RUN, _OWN_CACHES)
    if sum(given is not None for given in (options.prompt, options.text, options.chat)) != 1:
        raise InputError("give exactly one of --prompt (token numbers), --text and --chat")
    if options.words is not None and options.text is None:
        raise InputError("--words is the vocabulary for --text; give --text too")
    if all(pair.axis is None or pair.protocol == "cross" for pair in cache_pairs(graph)):
        refuse(options, ("kv_capacity",), f"reserves rows in caches, and {options.model} has none")
    kind = model_kind(graph)
    if not kind.decodes:
        prompt = next(name for name in ("prompt", "text", "chat") if getattr(options, name) is not None)
        why = f": {kind.why}" if kind.why else ""
        why_not = f"{options.model} holds {kind.name}, which has no next token to choose{why}"
        raise InputError(f"{why_not}; leave out --{prompt}")
    given = arrays_of(options.inputs)
    missing = [name for name in kind.needs if name not in given]
    if missing and options.prompt is None:
        # Made-up states would show the memory, but give no answer.
        raise InputError(f"{options.model} holds {kind.name}: give its encoder's output, {missing[0]}, with --inputs")
    inputs = _inputs(graph, options, decoding=True)
    prompt = options.prompt
    if options.chat is not None:
        _tokenizer(graph, options)
        prompt = graph.chat(options.chat)
    elif options.text is not None:
        prompt = options.text
        if options.words is None and graph.companions is not None:
            _tokenizer(graph, options)
    return inputs, {
        "prompt": prompt,
        "max_new_tokens": options.tokens or TOKENS,
        "kv_capacity": options.kv_capacity,
        "tokenizer": None if options.words is None else _words(options.words),
        "progress": sys.stderr.isatty(),
    }


def run_arguments(graph: Graph, options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    refuse(options, _FOR_DECODE, "needs --prompt, --text or --chat")
    inputs = _inputs(graph, options)
    donate = list(options.donate or ())
    pairs = cache_pairs(graph)
    if not any(pair.protocol == "growing" and pair.axis is not None for pair in pairs):
        refuse(options, ("kv_capacity",), f"reserves rows in growing caches, and {options.model} has none")
    for pair in pairs:
        if pair.protocol == "cross" or pair.input not in inputs:
            continue
        if options.donate_caches:
            donate.append(pair.input)
        if options.kv_capacity is not None and pair.protocol == "growing" and pair.axis is not None:
            try:
                inputs[pair.input] = kvviz.reserve(inputs[pair.input], pair.axis, options.kv_capacity)
            except ValueError as error:
                raise InputError(f"cache {pair.input!r}: {error}{blame(options.chosen)}") from None
    return inputs, {"outputs": options.output, "donate": tuple(dict.fromkeys(donate))}


def _inputs(graph: Graph, options: argparse.Namespace, decoding: bool = False) -> dict[str, Any]:
    """The inputs of the npz file, and the others made from the graph's declarations."""
    given = arrays_of(options.inputs)
    if not decoding and options.text is not None:
        _tokenizer(graph, options)
        given = {**text_inputs(graph, options.text), **given}
    maker = Maker(graph, _lengths(options), given, decoding)
    options.chosen = maker.proposed()
    try:
        return maker.filled(options.chosen).make()
    except InputError as error:
        raise InputError(f"{error}{blame(options.chosen)}") from None


def _lengths(options: argparse.Namespace) -> dict[str, int]:
    lengths: dict[str, int] = {}
    for name, length in options.dim or ():
        if lengths.setdefault(name, length) != length:
            raise InputError(f"--dim gives {name!r} twice, as {lengths[name]} and as {length}")
    return lengths


def _tokenizer(graph: Graph, options: argparse.Namespace) -> Any:
    """The tokenizer beside the model. Without one, the error proposes a command line that needs none."""
    assert graph.companions is not None
    try:
        return graph.companions.needed_tokenizer()
    except InputError as error:
        if not model_kind(graph).decodes:
            raise
        line = with_options(without_text(options.line), "--prompt", "1,2,3")
        raise InputError(proposed(str(error), line)) from None


def text_inputs(graph: Graph, text: str) -> dict[str, np.ndarray]:
    assert graph.companions is not None
    name = control_inputs(graph)["tokens"]
    dtype = next(value.dtype for value in graph.inputs if value.name == name)
    return {name: np.array([graph.companions.needed_tokenizer().encode(text)], dtype or np.int64)}


def arrays_of(path: str | None) -> dict[str, np.ndarray]:
    if path is None:
        return {}
    if not path:
        raise InputError("--inputs is empty; give the name of an .npz file, or leave it out")
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (ValueError, AttributeError, TypeError, EOFError, zipfile.BadZipFile):
        raise InputError(f"{path} is not an .npz file of plain arrays, as numpy.savez writes it") from None


def _words(path: str) -> list[str]:
    try:
        found = json.loads(Path(path).read_text("utf-8"))
    except ValueError as error:
        raise InputError(f"{path} is not JSON ({error})") from None
    if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
        raise InputError(f"{path} is not a vocabulary: it must be a JSON list of words")
    return found


def refuse(options: argparse.Namespace, names: Sequence[str], why: str) -> None:
    given = [f"--{name.replace('_', '-')}" for name in names if getattr(options, name) not in (None, False)]
    if given:
        raise InputError(f"{', '.join(given)} {why}")


def title_of(path: str, graph: str | None = None) -> str:
    """A model's file name, or its folder's if all models have the same name; and its graph, if chosen."""
    place = Path(path)
    if place.is_dir():
        name = place.resolve().name
        return name if graph is None else f"{name}-{Path(graph).name.removesuffix('.onnx')}"
    return place.resolve().parent.name if place.stem == "model" else place.stem
