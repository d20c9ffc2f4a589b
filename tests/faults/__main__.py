"""``python -m tests.faults``: draw faults, try them, report."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.faults.mutate import Fault, draw, faults_in
from tests.faults.table import EQUIVALENT, ROOT, files

_NOT_COPIED = shutil.ignore_patterns(".git", ".venv", "node_modules", "build", ".mypy_cache", ".ruff_cache")


def main(arguments: Sequence[str] | None = None) -> int:
    """Try faults; the exit status is 1 with ``--strict`` where fewer were noticed than asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="faults to put in (default: 300)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (default: 1)")
    parser.add_argument("--again", type=Path, help="a report: try those again that were not noticed")
    parser.add_argument("--file", default="", help="only in files whose path holds this text")
    parser.add_argument("--line", default="", help="only in lines that hold this text")
    parser.add_argument("--tests", default="", help="only tests of files whose path holds this text")
    parser.add_argument("--limit", type=float, default=90.0, help="seconds for a fault (default: 90)")
    parser.add_argument("--doubt", action="store_true", help="try those, too, that are listed as equivalent")
    parser.add_argument("--strict", type=float, metavar="PERCENT", help="fail where fewer are noticed")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "faults.txt", help="where the report goes")
    options = parser.parse_args(arguments)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    # The same random examples each time.
    os.environ.update(CI="true", MPLBACKEND="agg")
    return _run(options)


def not_noticed(report: str) -> set[tuple[str, str, str]]:
    """File, line before and line after of the faults that a report calls not noticed."""
    lines = report.splitlines()
    places = [place for place, line in enumerate(lines) if "NOT NOTICED: " in line]
    return {
        (lines[i].split("NOT NOTICED: ")[1].split(":")[0], lines[i + 1].strip()[2:], lines[i + 2].strip()[2:])
        for i in places
    }


def _run(options: argparse.Namespace) -> int:
    from tests.faults.child import warm_up

    paths = files(ROOT)
    found = [fault for path in paths for fault in faults_in(path, (ROOT / path).read_text("utf-8"))]
    found = [fault for fault in found if options.file in fault.path and options.line in fault.before]
    if options.again is None:
        drawn = draw(found, options.count, options.seed)
    else:
        wanted = not_noticed(options.again.read_text("utf-8"))
        drawn = [fault for fault in found if (fault.path, fault.before, fault.after) in wanted]
    print(f"{len(drawn)} of {len(found)} faults in {len(paths)} files, seed {options.seed}", flush=True)
    warm_up()
    with tempfile.TemporaryDirectory(prefix="kvviz-faults-") as folder:
        report, share = _try_all(drawn, paths, Path(folder), options)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text("\n".join(report) + "\n", "utf-8")
    return 1 if options.strict is not None and share < options.strict else 0


def _try_all(
    drawn: list[Fault], paths: list[str], folder: Path, options: argparse.Namespace
) -> tuple[list[str], float]:
    """Try every fault in a copy of the project; gives the report, and how many in a hundred were noticed."""
    from tests.faults.cover import Probes, measured
    from tests.faults.trial import Outcome, try_fault

    probes, log = Probes(), folder / "log.txt"
    root = shutil.copytree(ROOT, folder / "probed", ignore=_NOT_COPIED)
    for path in paths:
        (root / path).write_text(probes.put(path, (ROOT / path).read_text("utf-8")), "utf-8")
    cover = measured(root, probes, ROOT / "build" / "faults-cover.npz", log, options.tests)
    shutil.rmtree(root)
    root = shutil.copytree(ROOT, folder / "faulty", ignore=_NOT_COPIED)
    report: list[str] = []
    by: list[str] = []
    noticed = same = 0
    start = time.monotonic()
    for number, fault in enumerate(drawn, 1):
        reason = EQUIVALENT.get(fault.key, "")
        known = Outcome(False, "", reason, 0.0) if reason and not options.doubt else None
        outcome = known or try_fault(root, fault, cover, probes, options.limit, log, by)
        noticed += outcome.noticed
        same += not outcome.noticed and bool(reason)
        word = "noticed" if outcome.noticed else "equivalent" if reason else "NOT NOTICED"
        why = f"{outcome.by}: {outcome.why}" if outcome.noticed else reason or outcome.why
        if outcome.noticed and reason:
            why += " (it is listed as equivalent, and is not)"
        where = f"{fault.path}:{fault.line} {fault.function}"
        lines = [
            f"{number:4} {word}: {where} ({fault.kind}, {outcome.seconds:.0f} s)",
            f"       - {fault.before}",
            f"       + {fault.after}",
            f"       {why[:200]}",
        ]
        report += lines
        print("\n".join(lines), flush=True)
    count, minutes = len(drawn), (time.monotonic() - start) / 60
    share, others = 100 * noticed / max(count, 1), 100 * noticed / max(count - same, 1)
    told = f"{noticed} of {count} noticed: {share:.1f} %; {same} others change nothing; without them {others:.1f} %"
    report.append(f"{told}; {minutes:.0f} minutes")
    print(report[-1])
    return report, share


if __name__ == "__main__":
    sys.exit(main())
