"""What a user sees of kvviz before reading a word about it."""

from __future__ import annotations

from pathlib import Path

import kvviz


def test_dir_lists_every_public_name_and_nothing_that_kvviz_imports() -> None:
    seen = [name for name in dir(kvviz) if not name.startswith("_")]
    assert set(seen) == {*kvviz.__all__, "smollm2"}
    assert all(getattr(kvviz, name) is not None for name in kvviz.__all__)


def test_type_checkers_are_told_that_kvviz_is_typed() -> None:
    assert (Path(kvviz.__file__).parent / "py.typed").exists()
