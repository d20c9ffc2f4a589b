"""How long a lesson takes: words at 200 a minute, lines of code that are shown at 20, and a minute for each question.

``python .ci/reading_times.py`` writes the minutes into the list of lessons, in notebooks/README.md and start.ipynb.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

from kvviz.lessons.questions.by_number import all_numbers

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
ROAD = ("00", "01", "05", "06", "07", "08")  # of a newcomer


class Size(NamedTuple):
    """What a learner sees of a lesson. ``words``: with those that follow an answer, without addresses of links."""

    words: int
    lines: int
    questions: int

    @property
    def minutes(self) -> int:
        return round(self.words / 200 + self.lines / 20 + self.questions)


def size_of(path: Path) -> Size:
    """Of a notebook; cells whose source is folded away do not count."""
    words = lines = asked = 0
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            words += _words(source)
            continue
        for number in re.findall(r'ask\("([\w-]+)"\)', source):
            asked += 1
            words += _words(all_numbers()[number].partition("\n---\n")[2])
        if not cell["metadata"].get("jupyter", {}).get("source_hidden"):
            lines += len(source.splitlines())
    return Size(words, lines, asked)


def _words(text: str) -> int:
    return len(re.sub(r"\]\([^)]*\)", "]", text).split())


def lessons() -> dict[str, Size]:
    """By the number of the lesson."""
    return {path.name[:2]: size_of(path) for path in sorted(FOLDER.glob("[0-9]*.ipynb"))}


def told(text: str) -> str:
    """A page with the minutes of now."""
    for number, size in lessons().items():
        text = re.sub(rf"(\| \[{number} [^|]*\| )\d+( \|)", rf"\g<1>{size.minutes}\g<2>", text)
    road = sum(lessons()[number].minutes for number in ROAD)
    return re.sub(r"(\d+)( minutes from 00 to 08)", rf"{road}\g<2>", text)


if __name__ == "__main__":
    for number, size in lessons().items():
        print(f"{number}  {size.words:4} words {size.lines:3} lines {size.questions:2} questions  {size.minutes:3} min")
    for page in (FOLDER / "README.md", FOLDER / "start.ipynb"):
        page.write_text(told(page.read_text("utf-8")), "utf-8")
