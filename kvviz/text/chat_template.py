"""Prompts in the form that a chat model was trained on: its own template, run in a sandbox.

Templates are part of a model, and as little to be trusted. They are written for the way in which the package
``transformers`` sets Jinja up: blocks trimmed, ``raise_exception`` and ``strftime_now`` there, JSON not escaped for
HTML.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from kvviz.errors import KvvizError
from kvviz.text.needed_package import needed


def render_chat(template: str, messages: Sequence[Mapping[str, str]], names: Mapping[str, str]) -> str:
    """The prompt that asks for an answer to some messages.

    Parameters
    ----------
    template : str
        In Jinja's language.
    messages : sequence of mapping
        Each with ``role`` and ``content``.
    names : mapping of str to str
        Special tokens by the names that templates have for them: ``bos_token``, ``eos_token``.

    Raises
    ------
    KvvizError
        If Jinja is not installed, or the template cannot be used for these messages.
    """
    needed("jinja2")
    sandbox, exceptions = needed("jinja2.sandbox"), needed("jinja2.exceptions")

    def refuse(message: str) -> None:
        raise exceptions.TemplateError(message)

    made = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    made.filters["tojson"] = _json
    made.globals.update(raise_exception=refuse, strftime_now=lambda form: datetime.now().strftime(form))
    try:
        return str(made.from_string(template).render(messages=messages, add_generation_prompt=True, **names))
    except exceptions.TemplateError as error:
        raise KvvizError(f"the model's chat template cannot be used here: {error}") from None
    except Exception as error:  # a template can fail in any way that an expression can
        raise KvvizError(f"the model's chat template fails: {type(error).__name__}: {error}") from None


def _json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **more: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)
