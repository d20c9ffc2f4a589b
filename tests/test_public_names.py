"""What a user sees of kvviz before reading a word about it."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import kvviz
from kvviz import ggml
from kvviz.other_names import tables


def test_dir_lists_every_public_name_and_nothing_that_kvviz_imports() -> None:
    seen = [name for name in dir(kvviz) if not name.startswith("_")]
    assert set(seen) == {*kvviz.__all__, "smollm2"}
    assert all(getattr(kvviz, name) is not None for name in kvviz.__all__)


def test_type_checkers_are_told_that_kvviz_is_typed() -> None:
    assert (Path(kvviz.__file__).parent / "py.typed").exists()


def test_every_name_is_there_and_no_other_is_shown() -> None:
    assert [name for name in dir(ggml) if not name.startswith("_")] == sorted(ggml.__all__)
    assert all(getattr(ggml, name) is not None for name in ggml.__all__)


def test_kvviz_is_imported_without_it() -> None:
    code = "import sys, kvviz; sys.exit(any(name.startswith('kvviz.ggml') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


MOVED = tables()["moved"]


@pytest.mark.parametrize("old", MOVED)
def test_a_module_that_has_moved_is_found_with_a_warning(old: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"{old} has moved to {MOVED[old]}"):
        found = vars(import_module(old))
    assert {k: v for k, v in vars(import_module(MOVED[old])).items() if not k.startswith("__")}.items() <= found.items()
    del sys.modules[old]
