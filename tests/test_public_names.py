"""What a user sees of kvviz before reading a word about it."""

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
    assert (Path(kvviz.__file__).parent / "py.typed").exists()

    # and those of ggml
    assert [name for name in dir(ggml) if not name.startswith("_")] == sorted(ggml.__all__)
    assert all(getattr(ggml, name) is not None for name in ggml.__all__)


MOVED = tables()["moved"]


@pytest.mark.parametrize("old", MOVED)
def test_a_module_that_has_moved_is_found_with_a_warning(old: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"{old} has moved to {MOVED[old]}"):
        found = vars(import_module(old))
    assert {k: v for k, v in vars(import_module(MOVED[old])).items() if not k.startswith("__")}.items() <= found.items()
    del sys.modules[old]
