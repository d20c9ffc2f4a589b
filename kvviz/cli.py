"""The command line: ``kvviz report``, ``kvviz html``, ``kvviz compare``, ``kvviz smollm2``, ``kvviz lab``.

What is wrong with the input is said in one line on stderr, and the exit status is 2.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import json
import os
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import kvviz
from kvviz.atomic_write import replacing
from kvviz.decode.synthetic_inputs import Maker
from kvviz.errors import InputError, KvvizError
from kvviz.explain.units import size
from kvviz.graph.cache_pairs import cache_pairs
from kvviz.graph.model import Graph
from kvviz.runtimes.named_schedules import NAMES
from kvviz.smollm2.command import add_arguments as add_smollm2
from kvviz.smollm2.command import run as run_smollm2
from kvviz.view.comparison_view import comparison_text, plot_comparison
from kvviz.view.export import to_html
from kvviz.view.perfetto import export_perfetto
from kvviz.view.report_text import report
from kvviz.view.steps_table import steps_table

_TOKENS = 16
_POLICIES = ("ideal", "rten", "onnxruntime")
# What these say of a run has no meaning for a trace that was saved, and for the other kind of run.
_FOR_DECODE = ("tokens", "words")
_FOR_ONE_RUN = ("donate", "donate_caches", "output")
_FOR_RUNNING = ("inputs", "dim", "prompt", "text", "policy", "kv_capacity", *_FOR_DECODE, *_FOR_ONE_RUN)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    ``arguments``: without the program's name; those of the process by default.

    Returns exit status: 0, or 2 where the input was wrong.
    """
    line, rest = list(sys.argv[1:] if arguments is None else arguments), []
    if line[:1] == ["lab"] and line[1:] not in (["-h"], ["--help"]):
        # After the folder, everything is JupyterLab's own.
        cut = 1 + (len(line) > 1 and not line[1].startswith("-"))
        line, rest = line[:cut], line[cut:]
    options = _parser().parse_args(line)
    options.line, options.rest = line, rest
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A model may be named in letters that this terminal does not have.
        sys.stdout.reconfigure(errors="replace")
    try:
        status = options.run(options)
        sys.stdout.flush()
        return status
    except KvvizError as error:
        return _fail(str(error))
    except BrokenPipeError:
        # Whoever read the output has seen enough; what is still buffered has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _fail(f"{error.filename or 'a file'}: {error.strerror or error}")
    except MemoryError as error:
        return _fail(f"this needs more memory than there is: {error}")
    except KeyboardInterrupt:
        return 130


def _fail(message: str) -> int:
    print(f"kvviz: {' '.join(message.split())}", file=sys.stderr)
    return 2


def _report(options: argparse.Namespace) -> int:
    trace = _trace(options)
    table = steps_table(trace) if options.steps else None
    if options.json:
        data = trace.explain().to_dict()
        print(json.dumps(data if table is None else {**data, "table": table.rows}, indent=1))
    else:
        print(report(trace))
        if table is not None:
            print("\n" + table.text(len(table)))
    return 0


def _html(options: argparse.Namespace) -> int:
    trace = _trace(options)
    path = options.out or f"{_title(options.model)}.html"
    to_html(trace, path)
    _wrote(path)
    return 0


def _compare(options: argparse.Namespace) -> int:
    if _is_saved(options.model):
        raise InputError(f"{options.model} is a saved trace, which cannot be run under other rules; give the model")
    graph = kvviz.load(options.model)
    inputs, how = _decode_arguments(graph, options) if _decodes(options) else _run_arguments(graph, options)
    comparison = kvviz.compare(graph, inputs, options.policies or _POLICIES, options.schedules, **how)
    if options.json:
        rows = [asdict(row) for row in comparison]
        print(json.dumps({"equal": comparison.equal, "rows": rows}, indent=1))
    else:
        print(comparison_text(comparison))
    if options.figure:
        _wrote(_drawn(plot_comparison(comparison), options.figure))
    return 0


def _drawn(figure: Any, path: str) -> str:
    """Write a figure in the format that its name asks for, or else as PNG; its path."""
    path = path if Path(path).suffix else f"{path}.png"
    format = Path(path).suffix[1:]
    known = figure.canvas.get_supported_filetypes()
    if format.lower() not in known:
        raise InputError(f"cannot draw {path}: the formats of figures are {', '.join(sorted(known))}")
    with replacing(path) as file:
        figure.savefig(file, format=format)
    return path


def _lab(options: argparse.Namespace) -> int:
    if importlib.util.find_spec("jupyterlab") is None:
        raise KvvizError("JupyterLab is not installed; get it with: pip install 'kvviz[lab]'")
    # The notebooks here, else those of the checkout that kvviz was installed from, else this folder.
    places = [Path("notebooks"), Path(kvviz.__file__).resolve().parent.parent / "notebooks", Path()]
    folder = Path(options.folder) if options.folder else next(place for place in places if place.is_dir())
    if not folder.is_dir():
        raise KvvizError(f"there is no folder {str(folder)!r}")
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={folder.resolve()}", *options.rest]
    if getattr(os, "getuid", lambda: 1)() == 0:
        command.append("--allow-root")
    return subprocess.run(command).returncode


def _trace(options: argparse.Namespace) -> Any:
    """The trace that a command is about: read from a file, or made by running the model."""
    if _is_saved(options.model):
        _refuse(options, _FOR_RUNNING, f"cannot be used here: {options.model} is a saved trace, nothing is run")
        trace = kvviz.Trace.load(options.model)
    else:
        graph = kvviz.load(options.model)
        make, arguments = (kvviz.decode, _decode_arguments) if _decodes(options) else (kvviz.run, _run_arguments)
        inputs, how = arguments(graph, options)
        trace = make(graph, inputs=inputs, policy=options.policy or "ideal", **how)
        trace.title = _title(options.model)
    if options.save:
        trace.save(options.save)
        _wrote(options.save)
    if options.perfetto:
        export_perfetto(trace, options.perfetto)
        _wrote(options.perfetto)
    return trace


def _decodes(options: argparse.Namespace) -> bool:
    return options.prompt is not None or options.text is not None


def _decode_arguments(graph: Graph, options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """The inputs, and the other arguments, of a decode."""
    _refuse(options, _FOR_ONE_RUN, "is for a single run; a decode donates its caches by itself")
    if options.text is not None and (options.words is None or options.prompt is not None):
        raise InputError("give --prompt with token numbers, or --text together with --words vocab.json")
    return _inputs(graph, options, decoding=True), {
        "prompt": options.prompt if options.text is None else options.text,
        "max_new_tokens": options.tokens or _TOKENS,
        "kv_capacity": options.kv_capacity,
        "tokenizer": None if options.words is None else _words(options.words),
        "progress": sys.stderr.isatty(),
    }


def _run_arguments(graph: Graph, options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """The inputs, and the other arguments, of a single run."""
    _refuse(options, _FOR_DECODE, "needs --prompt or --text")
    inputs = _inputs(graph, options)
    donate = list(options.donate or ())
    for pair in cache_pairs(graph):
        if pair.protocol == "cross" or pair.input not in inputs:
            continue
        if options.donate_caches:
            donate.append(pair.input)
        if options.kv_capacity is not None and pair.protocol == "growing" and pair.axis is not None:
            try:
                inputs[pair.input] = kvviz.reserve(inputs[pair.input], pair.axis, options.kv_capacity)
            except ValueError as error:
                raise InputError(f"cache {pair.input!r}: {error}") from None
    return inputs, {"outputs": options.output, "donate": tuple(dict.fromkeys(donate))}


def _inputs(graph: Graph, options: argparse.Namespace, decoding: bool = False) -> dict[str, Any]:
    """The inputs of the npz file, and the others made from what the graph declares."""
    maker = Maker(graph, dict(options.dim or ()), _arrays(options.inputs), decoding)
    missing = maker.open_dims()
    if missing:
        fitting = maker.proposed()
        line = shlex.join([*options.line, "--dim", *(f"{name}={length}" for name, length in fitting.items())])
        raise InputError(f"the model leaves {', '.join(missing)} open; give a length, for example: kvviz {line}")
    return maker.make()


def _arrays(path: str | None) -> dict[str, np.ndarray]:
    if path is None:
        return {}
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


def _refuse(options: argparse.Namespace, names: Sequence[str], why: str) -> None:
    given = [f"--{name.replace('_', '-')}" for name in names if getattr(options, name) not in (None, False)]
    if given:
        raise InputError(f"{', '.join(given)} {why}")


def _is_saved(path: str) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return "header.json" in archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return False


def _title(path: str) -> str:
    """A model's file name, or that of its folder where all models are called the same."""
    place = Path(path)
    return place.resolve().parent.name if place.stem == "model" else place.stem


def _wrote(path: str) -> None:
    print(f"wrote {path} ({size(os.path.getsize(path))})", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kvviz", description="See what running an ONNX model does to memory.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"kvviz {kvviz.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    told = commands.add_parser("report", help="run a model and say what it did, on one screen", allow_abbrev=False)
    told.add_argument("--steps", action="store_true", help="also the table of all steps")
    told.add_argument("--json", action="store_true", help="the numbers as JSON")
    told.set_defaults(run=_report)
    page = commands.add_parser("html", help="write the debugger as one HTML file", allow_abbrev=False)
    page.add_argument("-o", "--out", metavar="FILE", help="where to (default: the model's name)")
    page.set_defaults(run=_html)
    side = commands.add_parser("compare", help="run a model under several policies, side by side", allow_abbrev=False)
    side.add_argument("--policies", nargs="+", metavar="NAME", help=f"default: {' '.join(_POLICIES)}")
    side.add_argument("--schedules", nargs="+", metavar="NAME", help=f"orders to try: {', '.join(NAMES)}")
    side.add_argument("--json", action="store_true", help="the numbers as JSON")
    side.add_argument("--figure", metavar="FILE", help="write the picture")
    side.set_defaults(run=_compare)
    for command in (told, page, side):
        _add_running(command.add_argument)
    for command in (told, page):
        _add_keeping(command.add_argument)
    small = commands.add_parser("smollm2", help="write SmolLM2-135M-Instruct as an ONNX model", allow_abbrev=False)
    add_smollm2(small)
    small.set_defaults(run=run_smollm2)
    lab = commands.add_parser("lab", help="start JupyterLab on the notebooks", allow_abbrev=False)
    lab.add_argument("folder", nargs="?", metavar="DIR", help="another folder; what follows goes to JupyterLab")
    lab.set_defaults(run=_lab)
    return parser


def _add_running(add: Any) -> None:
    add("model", metavar="MODEL", help="an .onnx file, or a trace written by --save")
    add("--inputs", metavar="FILE", help="inputs by name, in an .npz file; the others are made up")
    add("--dim", type=_dim, action="extend", nargs="+", metavar="NAME=N", help="length of a symbolic dimension")
    add("--prompt", type=_prompt, metavar="5,17,33", help="decode from these tokens")
    add("--text", help="decode from this text, with --words")
    add("--words", metavar="FILE", help="the vocabulary, a JSON list of words")
    add("--tokens", type=_positive, metavar="N", help=f"tokens to decode (default: {_TOKENS})")
    add("--donate", action="extend", nargs="+", metavar="NAME", help="inputs that the run may overwrite")
    add("--donate-caches", action="store_true", help="donate all caches")
    add("--kv-capacity", type=_positive, metavar="N", help="rows to reserve in growing caches")
    add("--output", action="extend", nargs="+", metavar="NAME", help="values to compute, in place of all outputs")


def _add_keeping(add: Any) -> None:
    add("--policy", metavar="NAME", help="the rules to run by (default: ideal)")
    add("--perfetto", metavar="FILE", help="write the trace for Perfetto")
    add("--save", metavar="FILE", help="write the trace")


def _dim(text: str) -> tuple[str, int]:
    name, _, length = text.rpartition("=")
    if not name or not length.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form name=length")
    return name, int(length)


def _prompt(text: str) -> list[int]:
    try:
        return [int(token) for token in text.replace(",", " ").split()]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of token numbers like 5,17,33") from None


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)
