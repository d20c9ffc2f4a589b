"""The lessons, which lie in the wheel as one archive, copied to a folder of the user's.

The archive holds ``notebooks/`` and what they read, ``assets/models/…``, side by side as in the repository.
"""

from __future__ import annotations

import io
import lzma
import os
import tarfile
from importlib.resources import files
from pathlib import Path

from kvviz.errors import KvvizError

ARCHIVE = "lessons.tar.xz"
LESSONS = "kvviz-lessons"


def unpack_lessons(folder: Path) -> Path:
    """Copy the lessons to a folder, and give that of the notebooks; files that are there stay as they are, so that what
    was tried out in them is kept. In a checkout, where there is no archive, the notebooks themselves."""
    packed = files("kvviz.demo").joinpath(ARCHIVE)
    if not packed.is_file():
        own = Path(__file__).resolve().parents[2] / "notebooks"
        if not own.is_dir():
            raise KvvizError("the lessons are not in this installation; install kvviz from its wheel")
        return own
    with tarfile.open(fileobj=io.BytesIO(lzma.decompress(packed.read_bytes()))) as archive:
        for member in archive:
            place = folder.joinpath(*member.name.split("/"))
            data = archive.extractfile(member)
            if data is None or place.exists():
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data.read())
    return Path(os.fspath(folder)) / "notebooks"
