"""The picture of a finding says what the finding says, in every form, for every producer."""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import kvviz
from kvviz import cli
from kvviz.errors import InputError
from kvviz.report.explain import findings
from kvviz.report.finding import Finding
from kvviz.trace.recording import Trace
from kvviz.trace.units import size
from tests.engine.graphs import graph_of
from tests.graph.build import MODELS
from tests.test_models import graph_of as model_of
from tests.ui.test_device_lanes import recorded

BEGINNING = [1, 77, 108]
"""The prompt of the README's picture."""
READERS = [(op, part) for op, part in zip(("Relu", "Neg", "Abs"), "efg") for _ in range(3)]


@cache
def story() -> Trace:
    return kvviz.decode(model_of("storyteller/concat"), BEGINNING, 4, progress=False)


def llama_cpp() -> Trace:
    recording = kvviz.ggml.load(MODELS / "llama_cpp" / "smollm2_fa_off.jsonl.gz")
    made: Trace = recording.graphs[-1].trace
    return made


def words(svg: str) -> str:
    """All text of a picture in one line, so that broken lines can be found."""
    texts = (node.text or "" for node in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"))
    return " ".join(" ".join(texts).split())


@pytest.mark.parametrize("make", [story, lambda: recorded(2), llama_cpp], ids=["decode", "device", "llama.cpp"])
def test_every_finding_has_a_picture_with_its_own_words(make: Callable[[], Trace]) -> None:
    trace = make()
    for rank, finding in enumerate(findings(trace), 1):
        made = kvviz.picture(trace, rank, dark=rank % 2 == 0)
        assert " ".join(finding.title.split()) in words(made.svg)
        assert finding.line in made.markdown
        assert not finding.bytes or size(finding.bytes) in words(made.svg)
        assert not finding.change or finding.change in made.markdown
        untried = finding.change or finding.calm or finding.kind not in ("miss", "copied")
        assert ("No single change" in words(made.svg)) == ("No single change" in made.markdown) == (not untried)
        assert made.png.startswith(b"\x89PNG") and len(made.png) < 400_000 and len(made.svg) < 400_000


def test_the_op_of_the_step_and_what_it_reads_are_drawn_the_same_every_time() -> None:
    trace = story()
    copied = next(one for one in findings(trace) if one.kind == "copied")
    shown = words(kvviz.picture(trace, copied).svg)
    step = trace.steps[copied.step or 0]
    assert step.op_type in shown and f"{size(step.copied)} copied here" in shown
    assert re.search(rf"step {step.index:,} of {len(trace.steps):,} · decode \d+", shown)
    assert kvviz.picture(trace, 2).svg == kvviz.picture(story.__wrapped__(), 2).svg


@pytest.mark.parametrize("look", ["light", "dark"])
def test_the_picture_in_the_readme_is_what_the_script_makes(look: str) -> None:
    committed = Path("assets/images", f"finding_{look}.svg").read_text("utf-8")
    graph = model_of("storyteller/concat")
    finding = next(one for one in findings(kvviz.decode(graph, BEGINNING, 24, progress=False)) if one.kind == "copied")
    assert finding.title in words(committed) and size(finding.bytes) in words(committed)


def test_the_ending_names_the_form(tmp_path: Path) -> None:
    made = kvviz.picture(story(), 1)
    for name, content in (("a.svg", made.svg.encode()), ("a.png", made.png), ("a.md", made.markdown.encode())):
        made.save(tmp_path / name)
        assert (tmp_path / name).read_bytes() == content
    with pytest.raises(InputError, match=r"a\.gif: a picture is saved as \.svg, \.png or \.md"):
        made.save(tmp_path / "a.gif")
    with pytest.raises(InputError, match=rf"finding=99: there are {len(findings(story()))} findings, numbered from 1"):
        kvviz.picture(story(), 99)


def test_one_command_writes_all_three_forms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = (MODELS / "storyteller" / "concat" / "model.onnx").resolve()
    monkeypatch.chdir(tmp_path)
    assert cli.main(["picture", str(model), "--prompt", "1,77,108", "--tokens", "3", "--finding", "2"]) == 0
    capsys.readouterr()
    assert {path.suffix for path in tmp_path.iterdir()} == {".svg", ".png", ".md"}


def test_a_page_opens_at_the_first_step_that_a_query_finds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(MODELS / "storyteller" / "concat" / "model.onnx")
    run = ["html", model, "--prompt", "1,77,108", "--tokens", "3", "-o", str(tmp_path / "a.html"), "--values", "100kB"]
    assert cli.main([*run, "--open-at", "op:Concat copied>0"]) == 0
    page = (tmp_path / "a.html").read_text("utf-8")
    trace = kvviz.decode(kvviz.load(model), [1, 77, 108], 3, progress=False)
    first = int(trace.find("op:Concat copied>0").numbers[0])
    assert f'"cursor": {first},' in page and 'id="kvviz-value_data"' in page
    assert cli.main([*run, "--open-at", "op:Nothing"]) == 2
    assert "open_at: no step of" in capsys.readouterr().err


def test_words_beside_links_and_the_readers_of_many_outputs_do_not_overlap() -> None:
    readers = " ".join(f"y{i} = {op}({part})" for i, (op, part) in enumerate(READERS))
    outputs = ", ".join(f"float[2, 6] y{i}" for i in range(9))
    graph = graph_of(f"""g (float[6, 6] x) => ({outputs}) {{ a = Add(x, x) b = Transpose <perm = [1, 0]> (a)
        c = Transpose <perm = [1, 0]> (x) d = Mul(b, c) e, f, g = Split <axis = 0, num_outputs = 3> (d) {readers} }}""")
    trace = kvviz.run(graph, {"x": np.ones((6, 6), np.float32)})
    split = next(step for step in trace.steps if step.op_type == "Split")
    about = Finding("held", "d is kept", 144, (split.index,), split.index)
    shown = words(kvviz.picture(trace, about).svg)
    assert (shown.count("Relu"), shown.count("Abs")) == (3, 0)
    missed = next(step for step in trace.steps if len({b.input for b in step.decision.blockers}) > 1)
    shown = words(kvviz.picture(trace, Finding("miss", "m", 144, (missed.index,), missed.index)).svg)
    assert shown.count("cannot be overwritten") == 1
