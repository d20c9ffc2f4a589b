"""The faults that are put into the code are what they say, and the rest of the file stays as it is."""

from __future__ import annotations

from tests.faults.cover import Probes
from tests.faults.mutate import apply, draw, faults_in
from tests.faults.table import ROOT, files

SOURCE = '''
def f(a: int, b, *, strict=True):
    """Says 1 < 2."""
    assert a != b
    if not a < 3:  # ärger
        return g(a, b), -1
    c = [x for x in b if x]
    c += 2
    return a if b and c else 0
'''


def test_a_fault_changes_one_expression() -> None:
    for before, after in [
        ("if not a < 3: # ärger", "if not (a <= 3): # ärger"),
        ("if not a < 3: # ärger", "if (a < 3): # ärger"),
        ("if not a < 3: # ärger", "if True: # ärger"),
        ("if not a < 3: # ärger", "if not a < 4: # ärger"),
        ("return g(a, b), -1", "return (g(b, a)), -1"),
        ("return g(a, b), -1", "return (-1, g(a, b))"),
        ("return g(a, b), -1", "return g(a, b), (1)"),
        ("c = [x for x in b if x]", "c = [x for x in b if True]"),
        ("c += 2", "c -= 2"),
        ("return a if b and c else 0", "return a if (b or c) else 0"),
        ("return a if b and c else 0", "return None"),
        ("def f(a: int, b, *, strict=True):", "def f(a: int, b, *, strict=False):"),
    ]:
        (fault,) = (one for one in faults_in("f.py", SOURCE) if (one.before, one.after) == (before, after))
        old, new = SOURCE.splitlines(), apply(SOURCE, fault).splitlines()
        (changed,) = (place for place, lines in enumerate(zip(old, new)) if lines[0] != lines[1])
        assert " ".join(new[changed].split()) == after and fault.line == changed + 1


def test_files_can_be_compiled_with_faults_and_with_probes() -> None:
    # What is only said or never wrong gets no fault.
    assert not [one for one in faults_in("f.py", SOURCE) if "assert" in one.before or "Says" in one.before]
    found = []
    for path in files(ROOT):
        source = (ROOT / path).read_text("utf-8")
        compile(Probes().put(path, source), path, "exec")
        found += faults_in(path, source)
    # Every one would take a minute.
    for fault in draw(found, 150, 1):
        compile(apply((ROOT / fault.path).read_text("utf-8"), fault), fault.path, "exec")
