"""Rules that hold for every file of the project."""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOT_OURS = {".git", ".venv", "node_modules", "test-results", "static", "__pycache__", "build", "dist"}
CODE = {".py", ".ts", ".mjs", ".css"}

# Their addresses belong to the clients' settings: a lock file or a link pins everybody to one of them.
_SPELLED = "py-pi org,python-hosted org,npm-js org,npm-js com,yarn-pkg com,deb deb-ian org,packages deb-ian org"
HOSTS = _SPELLED.replace("-", "").split(",")
REGISTRIES = re.compile("|".join(rf"\b{host}\b".replace(" ", r"\.") for host in HOSTS))
MACHINE_PATHS = re.compile(r"(?<![\w.:/])/(home|Users|root|work|tmp)/\w|\b[A-Z]:\\+Users\b")
LEFT_OVER = re.compile(
    r"\b(TODO|FIXME|XXX)\b"
    r"|\bpytest\.(skip|xfail|importorskip)\b|\bmark\.(skip|skipif|xfail)\b"
    r"|\b(it|test|describe)\.(skip|todo|only|fails)\b"
)


def git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.splitlines() if done.returncode == 0 else []


def all_files() -> list[Path]:
    """What is committed or could be, as git sees it; without git, what lies here and is not made by a tool."""
    listed = git("ls-files", "--cached", "--others", "--exclude-standard")
    found = [ROOT / name for name in listed] or [p for p in ROOT.rglob("*") if not NOT_OURS & set(p.parts)]
    return sorted(path for path in found if path.is_file())


def texts() -> dict[Path, str]:
    contents = {path.relative_to(ROOT): path.read_bytes() for path in all_files()}
    return {path: data.decode("utf-8", "replace") for path, data in contents.items() if b"\0" not in data[:8192]}


TEXTS = texts()
OURS = {path: text for path, text in TEXTS.items() if path.suffix in CODE and "static" not in path.parts}
# This file has to spell out what it forbids.
OTHERS = {path: text for path, text in TEXTS.items() if path.name != Path(__file__).name}


def hits(pattern: re.Pattern[str], files: dict[Path, str]) -> list[str]:
    return [f"{path}: {found.group()}" for path, text in files.items() for found in pattern.finditer(text)]


def test_the_rules_see_the_project() -> None:
    seen = {path.parts[0] for path in OURS}
    assert {"kvviz", "tests", "assets", ".ci"} <= seen
    assert {Path("pyproject.toml"), Path("Makefile"), Path("LICENSE")} <= TEXTS.keys()


def test_no_file_of_code_is_longer_than_400_lines() -> None:
    lengths = {str(path): len(text.splitlines()) for path, text in OURS.items()}
    assert {path: length for path, length in lengths.items() if length > 400} == {}


def test_no_file_names_a_package_registry_or_a_path_of_a_machine_and_nothing_is_skipped_or_left_for_later() -> None:
    assert hits(REGISTRIES, OTHERS) == hits(MACHINE_PATHS, OTHERS) == []
    assert hits(LEFT_OVER, {path: text for path, text in OURS.items() if path in OTHERS}) == []


def test_what_is_forbidden_is_found() -> None:
    for pattern, text in [
        (REGISTRIES, f'"https://some.{HOSTS[0].replace(" ", ".")}/x.tgz"'),
        (MACHINE_PATHS, "open('/home/ada/model.onnx')"),
        (MACHINE_PATHS, r"C:\\Users\\ada"),
        (LEFT_OVER, "@pytest.mark.skipif(True)"),
        (LEFT_OVER, "it.only('draws', () => {})"),
        (LEFT_OVER, "# TODO later"),
    ]:
        assert pattern.search(text)


def test_no_lock_file_of_uv_is_committed() -> None:
    assert git("ls-files", "uv.lock") == []
    assert "uv.lock" in (ROOT / ".gitignore").read_text("utf-8").split()


def test_the_front_end_module_stays_under_120_kb() -> None:
    sizes = {path.name: path.stat().st_size for path in (ROOT / "kvviz" / "widget" / "static").glob("*.js")}
    assert sizes, "no bundle: run make widget"
    assert {name: size for name, size in sizes.items() if size >= 120_000} == {}


def test_importing_kvviz_is_light() -> None:
    """What only some readers need is imported when it is used."""
    code = (
        "import json, sys; import kvviz; first = sorted(sys.modules);"
        "kvviz.load, kvviz.run, kvviz.decode, kvviz.explain;"
        "print(json.dumps([first, sorted(sys.modules)]))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    first, modules = json.loads(done.stdout)
    # Names are there at once, and each brings along what it needs.
    assert not {"numpy", "onnx"} & set(first)
    assert len([name for name in first if name.startswith("kvviz")]) < 10
    assert not any(name.startswith("kvviz.ggml") for name in modules)
    drawing = {"jupyterlab", "jupyter_server", "matplotlib", "anywidget", "IPython", "pygraphviz"}
    reading = {"onnxruntime", "onnx_ir", "tokenizers", "jinja2", "gguf"}
    assert not (drawing | reading | {"sympy"}) & set(modules)
