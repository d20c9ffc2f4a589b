"""A chart with a text for those who cannot see it."""

from __future__ import annotations

import base64
from html import escape
from io import BytesIO
from typing import Any

from IPython.display import display

from kvviz.errors import KvvizError
from kvviz.view.png import few_colours
from kvviz.view.svg import Picture


def picture(drawing: Any, alt: str) -> None:
    """Show a figure of matplotlib, or an SVG document, in a notebook, with its alternative text.

    Beside the PNG there is an HTML image, which has the text as ``alt``: JupyterLab has none for a PNG. The output's
    metadata has it, too, and it is the plain-text form.

    Parameters
    ----------
    drawing : matplotlib Figure or Axes, or str
    alt : str
        What the chart shows, in one or two sentences.

    Raises
    ------
    KvvizError
        If the text is empty.
    """
    if not alt.strip():
        raise KvvizError("a picture needs a text that says what it shows")
    if isinstance(drawing, str):
        # Untrusted notebooks strip inline SVG.
        display({"text/html": _image(alt, Picture(drawing).data_uri), "text/plain": alt}, raw=True)
        return
    from matplotlib import pyplot as plt

    drawn = getattr(drawing, "figure", drawing)
    file = BytesIO()
    drawn.savefig(file, format="png", dpi=100)
    # Else the notebook shows it once more at the end of the cell.
    plt.close(drawn)
    png = base64.b64encode(few_colours(file.getvalue())).decode()
    data = {"image/png": png, "text/html": _image(alt, f"data:image/png;base64,{png}"), "text/plain": alt}
    display(data, metadata={"image/png": {"alt": alt}, "alt": alt}, raw=True)


def _image(alt: str, address: str) -> str:
    return f'<img alt="{escape(alt)}" style="max-width:100%;break-inside:avoid" src="{address}">'
