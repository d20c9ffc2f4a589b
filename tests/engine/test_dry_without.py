"""A dry run needs neither the data of the weights nor the memory that they would take."""

import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import kvviz
from kvviz.errors import LoadError, UnknownValueError
from tests.engine.dry_and_real import assert_agree
from tests.engine.graphs import proto_of

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "assets/models/storyteller/concat/model.onnx"


def apart(folder: Path, least: int = 1024) -> Path:
    """The storyteller with its weights in a file of their own."""
    onnx.save(onnx.load(MODEL), folder / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=least)
    return folder / "m.onnx"


@pytest.mark.parametrize("policy", ["ideal", "never", "rten", "onnxruntime"])
def test_a_model_whose_data_are_missing_runs_dry_with_all_figures(tmp_path: Path, policy: str) -> None:
    path = apart(tmp_path)
    real = kvviz.decode(kvviz.load(path), [5, 17, 33], 3, policy=policy, progress=False, stop_tokens=())
    (tmp_path / "m.data").unlink()
    assert_agree(kvviz.dry(path, prompt_tokens=3, max_new_tokens=3, policy=policy), real)
    (tmp_path / "m.data").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    assert_agree(kvviz.dry(kvviz.load(path), prompt_tokens=3, max_new_tokens=3, policy=policy), real)


def test_numbers_of_a_model_whose_data_are_missing_are_refused_by_weight_and_file(tmp_path: Path) -> None:
    path = apart(tmp_path)
    missing = (tmp_path / "m.data").rename(tmp_path / "elsewhere")
    graph = kvviz.load(path)
    for start in (
        lambda: kvviz.decode(graph, [5], 2, progress=False),
        lambda: kvviz.run(graph, kvviz.inputs(graph)),
        lambda: kvviz.debug(graph, prompt=[5]),
    ):
        with pytest.raises(LoadError, match=r"^weight '.*'m\.data', which is missing; put it next to the model"):
            start()
    # when the file comes, the graph that was loaded before runs
    missing.rename(tmp_path / "m.data")
    wanted = kvviz.decode(kvviz.load(MODEL), [5], 2, progress=False).tokens
    assert kvviz.decode(graph, [5], 2, progress=False).tokens == wanted


def test_a_shape_that_lies_in_the_missing_data_is_asked_for_by_the_name_of_its_file(tmp_path: Path) -> None:
    text = "g (float[2, 3] x) => (float[a, b] y) <int64[2] shape = {3, 2}> { [change] y = Reshape(x, shape) }"
    model = proto_of(text)
    # Only data that are stored as bytes go to a file of their own.
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.array([3, 2]), "shape"))
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    (tmp_path / "m.data").unlink()
    told = r"^node 'change' \(Reshape\).*weight 'shape'.*'m\.data', which is miss"
    with pytest.raises(UnknownValueError, match=told):
        kvviz.dry(tmp_path / "m.onnx")


def test_where_the_address_space_is_limited_all_figures_stay() -> None:
    code = """
        import resource, sys
        import numpy as np
        import kvviz
        if len(sys.argv) > 1:
            resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
            try:
                np.empty(1 << 32, np.uint8)
            except MemoryError:
                print("limited", file=sys.stderr)
        graph = kvviz.shapes.llama(layers=4, vocabulary=128_000, hidden=4096, dtype="float16")
        for policy in ("ideal", "never", "rten", "onnxruntime"):
            trace = kvviz.dry(graph, prompt_tokens=64, max_new_tokens=3, kv_capacity=1 << 20, policy=policy)
            print(trace.peak_bytes, [(o.storage, o.how, o.offset, o.strides) for s in trace.steps for o in s.outs])
    """
    runs = [
        subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code), *limit], cwd=ROOT, capture_output=True, text=True, check=True
        )
        for limit in ([], ["limited"])
    ]
    assert runs[1].stderr == "limited\n"
    assert len(runs[0].stdout) > 10_000 and runs[0].stdout == runs[1].stdout
