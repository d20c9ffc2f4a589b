"""Prompts from a model's chat template, rendered in a sandbox with a time limit.

Templates are part of a model and are not trusted. They expect Jinja as the package ``transformers`` configures it:
blocks are trimmed, ``raise_exception`` and ``strftime_now`` exist, and JSON is not escaped for HTML.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

from kvviz.errors import KvvizError
from kvviz.text import needed, template_process

LONGEST = 10.0
"""Time limit for a template, in seconds; real ones take a few milliseconds."""


def render_chat(template: str, messages: Sequence[Mapping[str, str]], names: Mapping[str, str]) -> str:
    """The prompt for a conversation that the model is to continue.

    Parameters
    ----------
    template : str
        A Jinja template.
    messages : sequence of mapping
        Each with ``role`` and ``content``.
    names : mapping of str to str
        Special tokens by their names in templates: ``bos_token``, ``eos_token``.

    Raises
    ------
    KvvizError
        If Jinja is not installed, or the template cannot be used for these messages, or takes too long.
    """
    needed("jinja2")
    given = json.dumps([template, [dict(message) for message in messages], dict(names)], default=str)
    # The process finds the same packages as this one.
    where = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONIOENCODING": "utf-8"}
    line = [sys.executable, template_process.__file__]
    try:
        done = subprocess.run(line, input=given.encode(), capture_output=True, timeout=LONGEST, env=where)
    except subprocess.TimeoutExpired:
        raise KvvizError(
            f"the model's chat template did not end within {LONGEST:g} seconds; give the prompt as a text in the "
            "form that the model expects"
        ) from None
    except OSError as error:
        raise KvvizError(f"the process that fills in the model's chat template cannot start: {error}") from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise KvvizError(f"the model's chat template cannot be run: {''.join(said) or 'its process was ended'}")
    answer = json.loads(done.stdout)
    if "refused" in answer:
        raise KvvizError(f"the model's chat template cannot be used here: {answer['refused']}")
    if "failed" in answer:
        raise KvvizError(f"the model's chat template fails: {answer['failed']}")
    return str(answer["text"])
