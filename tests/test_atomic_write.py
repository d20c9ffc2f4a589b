"""What is written takes the place of an old file only when it is complete."""

import errno
import io
import os
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz import cli
from kvviz.atomic_write import replacing, replacing_files, write_text
from kvviz.errors import SaveError
from kvviz.runtimes.schedules import Picks
from tests.graph.build import MODELS, model, node

OLD = b"the old file"
STORY = MODELS / "storyteller" / "concat" / "model.onnx"


@pytest.fixture(scope="module")
def trace() -> kvviz.Trace:
    graph = kvviz.load(model([node("Relu", "x", "y"), node("Neg", "y", "z")], ["x float n"], ["z float n"]))
    return kvviz.run(graph, {"x": np.ones(4, np.float32)})


def command(*arguments: str) -> None:
    """A command line; what it says in one line becomes an error again."""
    heard = io.StringIO()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sys.stderr", heard)
        patched.setattr("sys.stdout", io.StringIO())
        if cli.main(arguments):
            raise SaveError(heard.getvalue().strip())


WRITERS: dict[str, Callable[[Any, Path], Any]] = {
    "save": lambda trace, path: trace.save(path),
    "to_html": lambda trace, path: trace.to_html(path),
    "to_perfetto": lambda trace, path: trace.to_perfetto(path),
    "picks": lambda trace, path: Picks.of(trace).save(path),
    "cli --save": lambda trace, path: command("report", str(STORY), "--prompt", "1,2", "--save", str(path)),
    "cli --figure": lambda trace, path: command("compare", str(STORY), "--prompt", "1,2", "--figure", str(path)),
}


def fill_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.fdopen

    class Full(io.FileIO):
        def write(self, data: Any) -> int:
            if self.tell() + len(data) > 20:
                super().write(bytes(data)[: 20 - self.tell()])
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return super().write(data)

    def fdopen(number: int, mode: str = "r", *more: Any) -> Any:
        return Full(number, mode) if mode == "wb" else opened(number, mode, *more)

    monkeypatch.setattr("kvviz.atomic_write.os.fdopen", fdopen)


@pytest.mark.parametrize("writer", WRITERS)
def test_a_write_that_fails_half_way_leaves_the_old_file_and_one_error(writer: str, trace: Any, tmp_path: Path) -> None:
    path = tmp_path / "kept.png"
    path.write_bytes(OLD)
    said = r"cannot write .*kept.png: No space left on device; what was there before is"
    with pytest.MonkeyPatch.context() as patched, pytest.raises(SaveError, match=said):
        fill_disk(patched)
        WRITERS[writer](trace, path)
    assert path.read_bytes() == OLD
    assert list(tmp_path.iterdir()) == [path]
    # and with room on the disk the old file is replaced
    WRITERS[writer](trace, path)
    assert path.read_bytes()[:12] != OLD
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, ValueError])
def test_whatever_stops_a_write_leaves_the_old_file(error: type[BaseException], tmp_path: Path) -> None:
    path = tmp_path / "kept"
    path.write_bytes(OLD)
    with pytest.raises(error), replacing(path) as file:
        file.write(b"half of the n")
        raise error
    assert path.read_bytes() == OLD
    assert list(tmp_path.iterdir()) == [path]


def test_links_are_followed_and_permissions_are_kept_or_those_that_the_process_gives(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    path, link = tmp_path / "there" / "file", tmp_path / "link"
    path.write_bytes(OLD)
    path.chmod(0o640)
    link.symlink_to(path)
    write_text(link, "new \udcff")
    assert link.is_symlink()
    assert path.read_text() == "new ?"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    write_text(tmp_path / "helped", "")
    (tmp_path / "plain").write_text("")
    assert (tmp_path / "helped").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_stream_and_a_device_are_written_to_directly(trace: kvviz.Trace) -> None:
    stream = io.BytesIO()
    trace.save(stream)
    assert zipfile.ZipFile(stream).testzip() is None
    write_text(os.devnull, "gone")
    assert not stat.S_ISREG(os.stat(os.devnull).st_mode)


@pytest.mark.parametrize("place", ["missing/file", "", "file/below"])
def test_a_place_that_cannot_be_written_is_one_clear_error(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(OLD)
    with pytest.raises(
        SaveError, match=r"^cannot write .*: (its folder does not exist|Is a directory|Not a directory)"
    ) as caught:
        write_text(tmp_path / place, "x")
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_files_that_belong_together_are_replaced_together(tmp_path: Path) -> None:
    # given: two files of an old model
    for name in ("weights", "model"):
        (tmp_path / name).write_bytes(OLD)
    # when: the second of the new ones fails
    with pytest.raises(ValueError, match="half"), replacing_files(tmp_path, last="model") as staged:
        (staged / "weights").write_bytes(b"new")
        raise ValueError("half")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"weights": OLD, "model": OLD}
    with replacing_files(tmp_path, last="model") as staged:
        (staged / "model").write_bytes(b"new")
        (staged / "weights").write_bytes(b"new")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"weights": b"new", "model": b"new"}


KILLED = """
import os, signal, sys
from pathlib import Path
from kvviz.atomic_write import replacing, replacing_files

folder = Path(sys.argv[1])
with replacing(folder / "a.html") as file, replacing_files(folder, "b") as staged:
    file.write(b"begun")
    (staged / "b").write_bytes(b"begun")
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_process_left_goes_with_the_next_write_and_nothing_else_does(tmp_path: Path) -> None:
    # given a process that writes, what looks like its parts, and a file of somebody else
    line = [sys.executable, "-c", KILLED, str(tmp_path)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None and writer.stdout.readline().strip() == b"ready"
        parts = sorted(tmp_path.glob(".kvviz-*.part"))
        others = [tmp_path / ".kvviz-mine.part", tmp_path / ".kvviz-0123456789ab.parts"]
        for path in others:
            path.write_bytes(OLD)
        # when somebody writes on that day, then nothing is removed
        write_text(tmp_path / "c.txt", "new")
        assert len(parts) == 2 and all(path.exists() for path in (*parts, *others))
        writer.kill()
        writer.wait()
    # when it was killed long ago
    for path in (*parts, *others):
        os.utime(path, (0, 0))
    write_text(tmp_path / "c.txt", "newer")
    # then its parts are gone
    assert not any(path.exists() for path in parts) and all(path.exists() for path in others)
    assert (tmp_path / "c.txt").read_text() == "newer"
