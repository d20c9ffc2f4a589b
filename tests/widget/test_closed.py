"""What is closed is freed: a page that was opened and closed leaves nothing behind."""

import gc
import subprocess
import sys
import textwrap
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import kvviz
from tests.decode.small import small
from tests.graph.build import MODELS

GRAPH = kvviz.load(small("concat").proto)


def debugger() -> Any:
    opened = kvviz.debug(GRAPH, prompt=[1, 2, 3], max_new_tokens=2)
    opened.resume()
    return opened


@pytest.mark.parametrize("page", [debugger, lambda: kvviz.plan(GRAPH)], ids=["debugger", "planner"])
def test_a_closed_page_is_freed_with_its_last_name(page: Callable[[], Any]) -> None:
    # given a page, without the collector: only counts of references free anything here
    opened = page()
    gc.collect()
    gc.disable()
    try:
        left = weakref.ref(opened)
        opened.close()
        del opened
        assert left() is None
    finally:
        gc.enable()


def test_debuggers_that_were_opened_and_closed_leave_no_objects() -> None:
    def count() -> int:
        gc.collect()
        return len(gc.get_objects())

    for _ in range(4):
        debugger().close()  # until what is kept of a plan's runs is whole
    before = count()
    for _ in range(8):
        debugger().close()
    assert count() - before < 8  # not one object of each


def test_decodes_in_a_loop_do_not_keep_python_from_collecting_the_callers_cycles() -> None:
    """In a process of its own: when Python collects depends on how many objects there are beside these."""
    code = """
        import sys, weakref, kvviz
        class Cycle:
            pass
        graph, left, traces = kvviz.load(sys.argv[1]), [], []
        for _ in range(60):
            cycle = Cycle()
            cycle.itself = cycle
            left.append(weakref.ref(cycle))
            del cycle
            traces.append(kvviz.decode(graph, [1, 2, 3], 16, progress=False))
        print(sum(one() is not None for one in left))
    """
    model = str(MODELS / "storyteller" / "concat" / "model.onnx")
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code), model], capture_output=True, text=True)
    assert done.stdout, done.stderr
    assert int(done.stdout) < 45
