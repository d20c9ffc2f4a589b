"""README as a package index shows it: links into the repository become addresses, as nothing lies beside it there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?:|#|mailto:)([^)\s]+)\)")


def with_addresses(text: str, repository: str) -> str:
    """A Markdown text whose relative links lead to a repository, and its pictures to what they show."""

    def full(link: re.Match[str]) -> str:
        mark, told, path = link.groups()
        return f"{mark}[{told}]({repository}/{'raw' if mark else 'blob'}/main/{path})"

    return _LINK.sub(full, text)


class ReadmeHook(MetadataHookInterface):
    """Called by hatchling for whatever it builds."""

    PLUGIN_NAME = "readme"

    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text("utf-8")
        told = with_addresses(text, metadata["urls"]["Homepage"])
        metadata["readme"] = {"content-type": "text/markdown", "text": told}
