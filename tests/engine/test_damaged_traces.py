"""Trace files that are damaged, hostile or something else: one clear error each, or a trace that can be read."""

import io
import json
import random
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvviz
from kvviz import Trace
from kvviz.errors import LoadError
from kvviz.trace.file.packed_file import SAVED, Packed, checksum, write_packed
from kvviz.trace.value_summaries import COLUMNS
from tests.decode.small import small
from tests.engine.changed_traces import changed_members, read_in_every_way, with_column
from tests.engine.test_trace import make
from tests.trace.recordings import two_lanes

DATA = Path(__file__).parent.parent / "data" / "traces"


def file_of(trace: Trace) -> bytes:
    target = io.BytesIO()
    trace.save(target)
    return target.getvalue()


@pytest.fixture(scope="module")
def saved() -> bytes:
    return file_of(make("loop"))


@pytest.fixture(scope="module")
def decoded() -> bytes:
    trace = kvviz.decode(kvviz.load(small("concat").proto), [3, 1, 4], 3, kv_capacity=8, progress=False)
    trace.summarise("200 kB")
    return file_of(trace)


def rewritten(data: bytes, name: str, change: Any) -> bytes:
    """The archive with one member changed."""
    members = members_of(data)
    members[name] = change(members[name])
    return signed(members)


def with_header(data: bytes, place: tuple, value: Any) -> bytes:
    """The archive with one value of its header changed."""

    def change(text: bytes) -> bytes:
        held = whole = {"all": json.loads(text)}
        *path, last = ("all", *place)
        for key in path:
            held = held[key]
        held[last] = value
        return json.dumps(whole["all"]).encode()

    return rewritten(data, "header.json", change)


def members_of(data: bytes) -> dict[str, bytes]:
    """All members of an archive but its checksum."""
    with zipfile.ZipFile(io.BytesIO(data)) as source:
        return {entry: source.read(entry) for entry in source.namelist() if entry != "sha256"}


def member_of(members: dict[str, bytes], name: str) -> str:
    """The member that has a column, whatever the size of its numbers."""
    (found,) = (member for member in members if member == name or member[:-3] == name)
    return found


def signed(members: dict[str, bytes]) -> bytes:
    """An archive whose checksum is right, as whoever means to deceive would write it."""
    members.pop("sha256", None)
    target = io.BytesIO()
    write_packed(target, members)
    return target.getvalue()


def zipped(members: dict[str, bytes], signature: str | bytes) -> bytes:
    """An archive that Python's own writer makes, with a checksum that may be wrong."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry, content in {**members, "sha256": signature}.items():
            archive.writestr(entry, content)
    return target.getvalue()


def fails(data: bytes, path: Path) -> str:
    path.write_bytes(data)
    with pytest.raises(LoadError) as caught:
        Trace.load(path)
    message = str(caught.value)
    assert message.count("\n") == 0 and len(message) < 500
    return message


def refused_or_read(path: Path) -> None:
    try:
        trace = Trace.load(path)
    except LoadError as error:
        assert "\n" not in str(error)
    else:
        read_in_every_way(trace)


def test_a_file_that_is_no_trace_is_missing_or_of_another_format_is_refused(saved: bytes, tmp_path: Path) -> None:
    for data in (b"", b"PK\x03\x04", b"hello", b"\0" * 4096):
        assert "is not a trace of kvviz, or it is damaged" in fails(data, tmp_path / "x")
    with pytest.raises(LoadError, match="there is no file"):
        Trace.load(tmp_path / "nothing")
    newer = rewritten(saved, "header.json", lambda text: text.replace(b'"format": 13', b'"format": 14'))
    assert "has trace format 14; this version reads 13, 12 and 11" in fails(newer, tmp_path / "x")
    fails(rewritten(saved, "header.json", lambda text: b"[" * 200_000), tmp_path / "x")


@pytest.mark.parametrize("name", ["header.json", "op.live", "free.storage"])
def test_an_archive_that_unpacks_to_gigabytes_is_not_unpacked(name: str, saved: bytes, tmp_path: Path) -> None:
    # given: some kilobytes that would become 200 MB, with a checksum that is right
    members = members_of(saved)
    member = member_of(members, name)
    members[member] = members[member][:1] + bytes(200 << 20)
    bomb = zipped(members, checksum(members))
    assert len(bomb) < 1 << 19
    members.clear()
    tracemalloc.start()
    message = fails(bomb, tmp_path / "x")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "more than 64 times as many" in message
    assert peak < 8 << 20


def test_a_directory_that_lies_about_sizes_does_not_unpack_either(saved: bytes, tmp_path: Path) -> None:
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", bytes(100 << 20))
        archive.filelist[0].compress_size <<= 6
    assert "less than its members need" in fails(bomb.getvalue(), tmp_path / "x")


def test_a_trace_that_packs_too_well_is_read_again(tmp_path: Path) -> None:
    members = {"header.json": b" " * (8 << 20), "op.i64": b"12345678" * 10}
    write_packed(tmp_path / "x", members)
    with zipfile.ZipFile(tmp_path / "x") as archive:
        packed = Packed(archive, tmp_path / "x")
        assert {name: packed.read(name) for name in members} == members
        packed.check(members)


def test_a_change_without_a_new_checksum_is_told_as_a_change(saved: bytes, tmp_path: Path) -> None:
    members = members_of(saved)
    header = members["header.json"].replace(b'"title": "', b'"title": "un')
    changed = zipped({**members, "header.json": header}, checksum(members))
    assert "was changed after it was written" in fails(changed, tmp_path / "x")


PLACES: list[tuple[tuple, Any]] = [
    ((), []),
    (("graphs", 0, "nodes", 0, 9), [["body", 0]]),
    (("graphs", 1, "nodes", 0, 10), 0),
    (("graphs", 0, "inputs", 0, 1), "float31"),
    (("graphs", 0, "nodes", 0, 11), {"axis": [[1]]}),
    (("programs", 0, 0), 9),
    (("programs", 0, 1, 0), 99),
    (("programs", 0, 1), []),
    (("nodes", 0, 0), 7),
    (("nodes", 0, 1), 99),
    (("nodes", 0, 5), [7]),
    (("nodes", 0, 7), [[0, 7]]),
    (("frames",), []),
    (("frames", 0, 0), -1),
    (("frames", 1, 1), 1),
    (("frames", 1, 2), 77),
    (("frames", 0, 5), 3),
    (("frames", 0, 7), 0),
    (("binds", 0, 1), 1000),
    (("binds", 0, 3), "stolen"),
    (("binds", 0, 4), [-4]),
    (("binds", 0, 5), "nonsense"),
    (("refusals",), []),
    (("refusals", 0, 0), [9]),
    (("forms", 0, 0), [-5]),
    (("forms", 0, 1), "float31"),
    (("runs", 0, 1), 10**6),
    (("runs",), [[0]]),
    (("caches",), [["a"]]),
    (("totals", 0), 1.5),
    (("tokens", 0), ["a"]),
    (("title",), {"a": 1}),
]


@pytest.mark.parametrize(("place", "value"), PLACES, ids=[".".join(map(str, p)) + f"={v}" for p, v in PLACES])
def test_a_header_with_something_out_of_place_is_refused(
    place: tuple, value: Any, saved: bytes, tmp_path: Path
) -> None:
    fails(with_header(saved, place, value), tmp_path / "x")


@pytest.mark.parametrize("name", SAVED)
@pytest.mark.parametrize("value", [-(2**62), 2**62])
def test_a_column_whose_numbers_point_nowhere_is_refused(name: str, value: int, saved: bytes, tmp_path: Path) -> None:
    members = members_of(saved)
    column = member_of(members, name)
    count = len(members[column]) // int(column[-1])
    fails(signed(with_column(members, column, np.full(count, value))), tmp_path / "x")


@pytest.mark.parametrize("name", ["header.json", *SAVED, *(f"values.{name}" for name in sorted(COLUMNS))])
def test_a_member_that_is_cut_or_too_long_is_refused(name: str, saved: bytes, decoded: bytes, tmp_path: Path) -> None:
    if name.startswith("values."):
        size = np.dtype(COLUMNS[name[7:]][0]).itemsize
        fails(rewritten(decoded, name, lambda c: c[:-size]), tmp_path / "x")
        return
    member = member_of(members_of(saved), name)
    for change in (lambda c: c[:-8], lambda c: c[:-3], lambda c: c + c[:8]):
        fails(rewritten(saved, member, change), tmp_path / "x")


@pytest.mark.parametrize("version", [11, 12])
@pytest.mark.parametrize("kind", ["loop", "nested", "functions", "concat", "two_lanes"])
def test_a_file_of_a_format_before_is_read_as_what_it_was_saved_from(kind: str, version: int, tmp_path: Path) -> None:
    # given: a file that the last version with this format wrote, and the same trace recorded now
    before = Trace.load(DATA / f"{kind}_{version}.kvviz")
    now = two_lanes() if kind == "two_lanes" else make(kind)
    # then: they say the same, and the log is saved as the same columns
    assert repr(before.table().text(10**6)) == repr(now.table().text(10**6))
    assert before.storages == now.storages and before.runs == now.runs and before.caches == now.caches
    assert [step.decision for step in before.steps] == [step.decision for step in now.steps]
    saved = []
    for trace in (before, now):
        trace.save(tmp_path / "x")
        saved.append(members_of((tmp_path / "x").read_bytes()))
        del saved[-1]["header.json"]
    assert saved[0] == saved[1]


@settings(max_examples=60)
@given(places=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4))
def test_whatever_bytes_are_damaged_the_result_is_a_trace_or_one_error(
    places: list[tuple[int, int]], saved: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = bytearray(saved)
    for place, byte in places:
        data[place % len(data)] = byte
    path = tmp_path_factory.mktemp("damaged") / "x"
    path.write_bytes(data)
    refused_or_read(path)


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("kind", ["loop", "decode"])
def test_a_trace_changed_with_a_new_checksum_is_refused_or_read_by_every_reader(
    kind: str, seed: int, saved: bytes, decoded: bytes, tmp_path: Path
) -> None:
    members = members_of(saved if kind == "loop" else decoded)
    (tmp_path / "x").write_bytes(signed(changed_members(members, random.Random(f"{kind} {seed}"))))
    refused_or_read(tmp_path / "x")


@pytest.mark.parametrize("row", [[0, 0, 2, 2, -1, 0], [0, 0, 2, 2, 2**31 - 1, 0], [0, 0, 2**24 - 1, 0, 2**24 - 1, 0]])
def test_attention_to_rows_that_no_cache_has_is_refused(decoded: bytes, row: list[int], tmp_path: Path) -> None:
    members = members_of(decoded)
    column = np.frombuffer(members["values.attention"], COLUMNS["attention"][0]).copy()
    column[: len(row)] = row
    message = fails(signed({**members, "values.attention": column.tobytes()}), tmp_path / "x")
    assert "numbers out of place" in message
