"""A chart with a text for those who cannot see it."""

from __future__ import annotations

import base64
from io import BytesIO
from typing import Any

from IPython.display import display

from kvviz.errors import KvvizError


def picture(figure: Any, alt: str) -> None:
    """Show a figure of matplotlib in a notebook, with its alternative text.

    The text stands in the output's metadata, where nbconvert takes it for ``alt``, and as the plain form of the output.

    Parameters
    ----------
    figure : matplotlib Figure or Axes
    alt : str
        What the chart shows, in one or two sentences.

    Raises
    ------
    KvvizError
        If the text is empty.
    """
    if not alt.strip():
        raise KvvizError("a picture needs a text that says what it shows")
    from matplotlib import pyplot as plt

    drawn = getattr(figure, "figure", figure)
    file = BytesIO()
    drawn.savefig(file, format="png", dpi=100)
    # Else the notebook shows it once more at the end of the cell.
    plt.close(drawn)
    data = {"image/png": base64.b64encode(file.getvalue()).decode(), "text/plain": alt}
    display(data, metadata={"image/png": {"alt": alt}, "alt": alt}, raw=True)
