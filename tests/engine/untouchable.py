"""Dry runs whose ghosts have no pages: whoever reads or writes one ends the process. Run as a module, with models."""

import ctypes
import faulthandler
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

import kvviz
from kvviz.decode.run_sessions import SingleRun
from kvviz.errors import KvvizError
from kvviz.graph.model import Graph
from kvviz.memory import ghosts
from kvviz.memory.ghosts import ghost

POLICIES = ["ideal", "never", "rten", "onnxruntime"]


def plain(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def without_contents(value: Any, everything: bool = False) -> Any:
    """A ghost of what an operator computes with, or reads at all; else lengths, indices and lone numbers stay known."""
    if isinstance(value, list):
        return [without_contents(element, everything) for element in value]
    if not isinstance(value, np.ndarray) or value.dtype == object:
        return value
    known = not everything and (value.dtype.kind in "biu" or value.size <= 1)
    return value if known else ghost(value.shape, value.dtype)


def cases() -> Iterator[tuple[Graph, dict[str, Any]]]:
    """The graphs of the ONNX suite, one for each operator and form of it, with their inputs."""
    for case in load_model_tests(kind="node"):
        assert case.model is not None and case.data_sets is not None
        graph = kvviz.load(case.model)
        yield graph, dict(zip((value.name for value in graph.inputs), map(plain, case.data_sets[0][0])))


def take_pages_away() -> None:
    """Let every ghost that is made from now on end the process that touches it."""
    faulthandler.enable()
    reserved, protect = ghosts._reserved, ctypes.CDLL(None).mprotect

    def unreadable(size: int) -> Any:
        block = reserved(size)
        at = np.frombuffer(block, np.uint8).ctypes.data
        assert protect(ctypes.c_void_p(at), ctypes.c_size_t(size), 0) == 0
        return block

    ghosts._reserved = unreadable


def runs_dry(graph: Graph, given: dict[str, Any], everything: bool, policy: str) -> bool:
    """Whether a graph runs without a value that depends on data."""
    blinded = {name: without_contents(value, everything) for name, value in given.items()}
    donate = [name for name, value in blinded.items() if isinstance(value, np.ndarray) and value.flags.writeable]
    try:
        SingleRun(graph, blinded, None, donate, policy, dry={}).run_to_end()
    except KvvizError:
        return False
    return True


def main(models: Sequence[str]) -> None:
    warnings.simplefilter("ignore")
    take_pages_away()
    for turn, model in enumerate(models):
        graph = kvviz.load(model)
        for other, policy in enumerate(POLICIES):
            # Each model and each policy with room and without, but not each pair of them.
            rows = (None, 12)[(turn + other) % 2]
            repr(kvviz.explain(kvviz.dry(graph, prompt_tokens=5, max_new_tokens=4, policy=policy, kv_capacity=rows)))
    done = [0, 0]
    for number, (graph, given) in enumerate(cases()):
        policy = POLICIES[number % 4]
        for everything in (False, True):
            done[everything] += runs_dry(graph, given, everything, policy)
    print("untouched", *done)


if __name__ == "__main__":
    main(sys.argv[1:])
