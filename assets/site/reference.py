"""The reference pages, one for each public module: every name of its ``__all__``."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType

import kvviz.errors
from kvviz.cli.options import parser

MODULES = {
    "kvviz": "kvviz",
    "kvviz.plot": "kvviz.plot: figures",
    "kvviz.policies": "kvviz.policies: rules of runtimes",
    "kvviz.shapes": "kvviz.shapes: decoders without weights",
    "kvviz.ggml": "kvviz.ggml: ggml and llama.cpp",
    "kvviz.device": "kvviz.device: accelerators",
    "kvviz.ext": "kvviz.ext: extensions",
    "kvviz.lessons": "kvviz.lessons: for teaching",
    "kvviz.smollm2": "kvviz.smollm2: GGUF files",
}
"""Public modules with their titles. Those of ``kvviz.__all__`` are among them; a test compares."""

RECORDS = {
    "What a trace is made of": (
        "kvviz.trace.records",
        ("Step", "Placed", "StorageRecord", "TraceFrame", "Run", "Cache", "CacheRun", "Rows"),
    ),
    "Decisions": ("kvviz.trace.blockers", ("BlockerCode", "Blocker", "Decision")),
    "Hazards": ("kvviz.trace.index.hazards", ("Hazard",)),
    "Findings": ("kvviz.report.finding", ("Finding", "Findings", "Part", "Cure")),
    "Fixes": ("kvviz.fixes.fix", ("Fix",)),
    "Tables": ("kvviz.report.faces.steps_table", ("Table",)),
    "Pictures": ("kvviz.view.charts.finding_picture", ("FindingPicture",)),
    "Graphs": ("kvviz.graph.model", ("Graph", "Node", "Value")),
    "Verifications": ("kvviz.verification.verified", ("Verification", "VerifiedOp")),
    "Audits": ("kvviz.audit.audit_rows", ("AuditRow", "ModelChange")),
    "Limits as tests": ("kvviz.audit.pytest_plugin", ("Budget",)),
}
"""What the functions return, by the module where it is."""


def loaded(module: str) -> ModuleType:
    """A module by its public name; ``kvviz.plot`` is one that lies elsewhere."""
    return kvviz.plot if module == "kvviz.plot" else import_module(module)


def names(module: str) -> list[str]:
    """The public names of a module that are no modules."""
    found = loaded(module)
    return [name for name in found.__all__ if not isinstance(getattr(found, name), ModuleType)]


def entry(module: str, name: str, homes: dict[int, str] | None = None) -> str:
    """The directive that documents a name of a module. What has its home under another name refers to it.

    ``homes``: where things are documented so far, by their ids.
    """
    thing, homes = getattr(loaded(module), name), {} if homes is None else homes
    full = f"{module}.{name}"
    data = f".. py:data:: {name}\n   :module: {module}\n\n"
    home = homes.setdefault(id(thing), full)
    if home != full:
        return f"{data}   The same as `{home}`.\n"
    if isinstance(thing, kvviz.Policy):
        return f"{data}   {thing.about}\n"
    if inspect.isclass(thing):
        return f".. autoclass:: {full}\n   :members:\n   :inherited-members: tuple, str, Exception, BaseException\n"
    if callable(thing):
        return f".. autofunction:: {full}\n"
    kind = "mapping" if isinstance(thing, Mapping) else type(thing).__name__
    inside = f": {', '.join(f'``{key}``' for key in thing)}" if isinstance(thing, (Mapping, tuple)) else ""
    return f"{data}   {kind}{inside}\n"


def page(title: str, text: str) -> str:
    return f"{title}\n{'=' * len(title)}\n\n{text}"


def write(folder: Path) -> None:
    """Write all pages."""
    folder.mkdir(parents=True, exist_ok=True)
    homes: dict[int, str] = {}
    for module, title in MODULES.items():
        # The first package shows itself in an example; the others say what they are for.
        about = "" if module in ("kvviz", "kvviz.plot") else f".. automodule:: {module}\n   :no-members:\n\n"
        text = page(title, about + "\n".join(entry(module, name, homes) for name in names(module)))
        (folder / f"{module.replace('.', '_')}.rst").write_text(text, "utf-8")
    records = []
    for title, (module, classes) in RECORDS.items():
        records.append(f"{title}\n{'-' * len(title)}\n\n" + "\n".join(entry(module, name, homes) for name in classes))
    (folder / "records.rst").write_text(page("What the functions return", "\n".join(records)), "utf-8")
    errors = [
        name for name, thing in vars(kvviz.errors).items() if inspect.isclass(thing) and issubclass(thing, Exception)
    ]
    text = "\n".join(entry("kvviz.errors", name, homes) for name in errors)
    (folder / "errors.rst").write_text(page("kvviz.errors", text), "utf-8")
    (folder / "command_line.rst").write_text(page("The command line", _commands()), "utf-8")


def _commands() -> str:
    """What ``kvviz COMMAND --help`` prints, for all commands."""
    made = parser()
    (group,) = [action for action in made._actions if isinstance(action, argparse._SubParsersAction)]
    text = []
    for name, command in group.choices.items():
        command.formatter_class = lambda prog: argparse.HelpFormatter(prog, width=100)
        lines = "\n".join(f"   {line}" for line in command.format_help().splitlines())
        text.append(f"kvviz {name}\n{'-' * (6 + len(name))}\n\n.. code-block:: text\n\n{lines}\n")
    return "\n".join(text)
