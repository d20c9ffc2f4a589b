"""Tiny models, converted once for all tests that only read them."""

from pathlib import Path

import pytest

from kvviz.smollm2 import FORMS, convert
from tests.smollm2.tiny import Tiny, write_tiny


@pytest.fixture(scope="session")
def gguf_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny GGUF file whose head is tied to its embedding."""
    return write_tiny(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture(scope="session")
def untied_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny GGUF file with a head of its own."""
    return write_tiny(tmp_path_factory.mktemp("gguf") / "untied.gguf", Tiny(tied=False), seed=1)


@pytest.fixture(scope="session")
def folders(gguf_file: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The tiny model in every form."""
    made = {form: tmp_path_factory.mktemp(form) for form in FORMS}
    for form, folder in made.items():
        convert(folder, form, gguf_file)
    return made
