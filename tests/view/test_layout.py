"""Layout: whatever engine there is, every box gets a place, in time."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given

import kvviz
from kvviz.view.drawing import block_layout as module
from kvviz.view.drawing.block_layout import Engine, engines, forget, layout, parse_plain, run_engine
from kvviz.view.drawing.layered import layered
from kvviz.view.drawing.sketch import Sketch
from tests.view.sketches import DIAMOND, FAKE_DOT, any_sketch, check, program, sketches_of
from tests.work import lines_of

# Seconds until an engine is ended: on a busy machine a program may not even have started after the first of them.
PATIENCE = (1, 10, 60)
OTHER = Sketch(DIAMOND.sizes, DIAMOND.links[:4], ())


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    forget()
    yield
    forget()


@pytest.mark.parametrize("engine", ["pygraphviz", "layered"])
def test_every_block_of_every_model_is_drawn_without_overlap(
    engine: str, trace: kvviz.Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVVIZ_DOT", engine)
    sketches = sketches_of(trace)
    drawings = layout(sketches)
    for sketch, drawing in zip(sketches, drawings, strict=True):
        check(sketch, drawing)
        assert drawing.engine == (engine if len(sketch.sizes) > 1 else "layered")


def test_without_graphviz_blocks_are_drawn_by_the_built_in_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVVIZ_DOT", "pygraphviz")
    monkeypatch.setitem(sys.modules, "pygraphviz", None)
    (drawing,) = layout([DIAMOND])
    check(DIAMOND, drawing)
    assert drawing.engine == "layered"


@given(any_sketch())
def test_the_built_in_layout_draws_any_block_the_same_every_time(sketch: Sketch) -> None:
    check(sketch, module._with_layers(sketch))
    assert layered(sketch) == layered(sketch)


def braided(n: int) -> Sketch:
    return Sketch(((100, 36),) * n, tuple((i, j) for i in range(n) for j in (i + 1, i + 7) if j < n), ())


def test_the_built_in_layout_takes_thousands_of_ops_and_for_four_times_as_many_less_than_five_times_the_work() -> None:
    assert lines_of(lambda: layered(braided(320))) < 5 * lines_of(lambda: layered(braided(80)))
    n = 3000
    sketch = braided(n)
    (drawing,) = layout([sketch])
    assert drawing.engine == "layered", "too large for Graphviz"
    assert len({(x, y) for x, y, _, _ in drawing.boxes}) == n


def test_equal_blocks_are_laid_out_once_and_not_all_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    real = module.run_engine

    def counting(engine: Engine, sources: list[str], deadline: float) -> list:
        asked.append(len(sources))
        return real(engine, sources, deadline)

    monkeypatch.setattr(module, "run_engine", counting)
    first = layout([DIAMOND] * 5)
    second = layout([Sketch(DIAMOND.sizes, DIAMOND.links, DIAMOND.stubs)])
    assert asked == [1]
    assert all(drawing is first[0] for drawing in [*first, *second])
    monkeypatch.setattr(module, "_CACHE_SIZE", 4)
    layout([Sketch(((80 + i, 36),), (), ()) for i in range(10)])
    assert len(module._CACHE) == 4


def test_a_dot_program_on_the_path_comes_first_and_one_that_the_user_names_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, FAKE_DOT)
    monkeypatch.delenv("KVVIZ_DOT", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    drawings = layout([DIAMOND, OTHER])
    assert [d.engine for d in drawings] == ["dot", "dot"]
    check(DIAMOND, drawings[0])
    check(OTHER, drawings[1])
    mine = program(tmp_path, FAKE_DOT, "my-dot")
    monkeypatch.setenv("KVVIZ_DOT", str(mine))
    assert engines()[0].command[0] == str(mine)


def test_an_engine_that_hangs_is_killed_with_its_children_and_the_block_drawn_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a program whose child keeps the output open, and a pipe that is at its end when neither holds it any more
    held = tmp_path / "held"
    os.mkfifo(held)
    program(tmp_path, f"#!/bin/sh\nexec 3> {held}\n(sleep 100; echo left >&3) & echo up >&3; sleep 600\n", "hang")
    monkeypatch.setenv("KVVIZ_DOT", str(tmp_path / "hang"))
    for seconds in PATIENCE:
        forget()
        pipe = os.open(held, os.O_RDONLY | os.O_NONBLOCK)
        (drawing,) = layout([DIAMOND], deadline=seconds)
        assert drawing.engine == "layered"
        check(DIAMOND, drawing)
        os.set_blocking(pipe, True)
        with os.fdopen(pipe, "rb") as end:
            written = end.read()
        if written:
            break
    assert written == b"up\n", "the engine's child was left running"


def test_an_engine_that_hung_is_not_waited_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "#!/bin/sh\nexec sleep 600\n", "hang")
    monkeypatch.setenv("KVVIZ_DOT", str(tmp_path / "hang"))
    layout([DIAMOND], deadline=0.3)
    program(tmp_path, f"#!/bin/sh\ntouch {tmp_path / 'asked'}\n", "hang")
    layout([OTHER])
    assert not (tmp_path / "asked").exists()


@pytest.mark.parametrize(
    "text",
    [
        "#!/bin/sh\nexit 3\n",
        "#!/bin/sh\necho 'graph x y z'\n",
        "#!/bin/sh\necho 'graph 1 2 3'; echo 'node n0 a b'; echo stop\n",
        "#!/bin/sh\nprintf 'graph 1 2 3\\nstop\\n'\n",
        "not a program",
    ],
)
def test_an_engine_that_talks_nonsense_is_passed_over(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    program(tmp_path, text, "broken")
    monkeypatch.setenv("KVVIZ_DOT", str(tmp_path / "broken"))
    (drawing,) = layout([DIAMOND])
    check(DIAMOND, drawing)
    assert drawing.engine in ("pygraphviz", "layered")
    assert capfd.readouterr() == ("", "")


def test_what_an_engine_did_before_it_died_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given an engine that lays out one graph and then hangs
    text = FAKE_DOT + "        sys.stdout.flush()\n        __import__('time').sleep(600)\n"
    program(tmp_path, text, "slow")
    monkeypatch.setenv("KVVIZ_DOT", str(tmp_path / "slow"))
    for seconds in PATIENCE:
        forget()
        drawings = layout([DIAMOND, OTHER], deadline=seconds)
        if drawings[0].engine == "dot":
            break
    assert [d.engine for d in drawings] == ["dot", "layered"]


def test_graphviz_writes_nothing_to_the_notebook(capfd: pytest.CaptureFixture[str]) -> None:
    sources = ["digraph { n0 [fontname=nosuchfont label=x]; n0 -> n0 }", "digraph { this is not dot ]"]
    for engine in engines():
        run_engine(engine, sources, 10)
    assert engines()
    assert capfd.readouterr() == ("", "")


def test_several_graphs_in_one_output_are_told_apart() -> None:
    text = "graph 1 2 1\nnode n0 1 .5 1 .5 a\nstop\ngraph 1 2 1\nnode n0 1 .5 1 .5 a\nedge n0 n1 4 0 0 1 1 2 2 3"
    done = parse_plain(text)
    assert len(done) == 1, "the second is not complete"
    assert done[0].centres == {0: (72.0, 36.0)}


def test_a_tree_of_sources_stands_by_its_reader() -> None:
    # Two boxes over a third, beside a chain of five that ends in the same box as the third.
    links = ((0, 1), (1, 2), (2, 3), (3, 4), (4, 8), (5, 7), (6, 7), (7, 8))
    corners, _ = layered(Sketch(((84, 36),) * 9, links, ()))
    assert corners[7][1] == corners[4][1]
    assert corners[5][1] == corners[6][1] == corners[3][1]
