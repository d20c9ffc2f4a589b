"""A program that renders a chat template in a separate process, which can be killed if the template does not end.

It imports nothing from kvviz, reads JSON from standard input, and writes JSON: the text, or an error.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import Any

_MEMORY = 2 << 30  # limit in bytes, where the operating system supports it


def render(template: str, messages: list[dict[str, str]], names: dict[str, str]) -> dict[str, str]:
    """``{"text": …}``; ``{"refused": …}`` if the template raises an error itself, ``{"failed": …}`` if it fails."""
    from jinja2 import exceptions, sandbox

    def refuse(message: str) -> None:
        raise exceptions.TemplateError(message)

    made = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    made.filters["tojson"] = _json
    made.globals.update(raise_exception=refuse, strftime_now=lambda form: datetime.now().strftime(form))
    try:
        return {"text": str(made.from_string(template).render(messages=messages, add_generation_prompt=True, **names))}
    except exceptions.TemplateError as error:
        return {"refused": str(error)}
    except Exception as error:  # a template can fail in any way that an expression can
        return {"failed": f"{type(error).__name__}: {error}"}


def _json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **more: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _bound_memory() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    except (ImportError, ValueError, OSError):
        pass


if __name__ == "__main__":
    _bound_memory()
    sys.stdout.write(json.dumps(render(*json.loads(sys.stdin.buffer.read()))))
