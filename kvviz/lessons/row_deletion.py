"""Delete rows of a cache by a click, and see what the model would say then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any
from uuid import uuid4

import ipywidgets
import numpy as np
from IPython.display import display

from kvviz.errors import KvvizError
from kvviz.widget.still_image import stands_in


class RowDeletion(ipywidgets.VBox):
    """A button for each row: pressed, it deletes the row from all caches. The last line of a cell displays it.

    ``words``: the token of the row at each position, as text.
    ``without``: takes the deleted positions and returns the probability of each token.
    ``text_of``: returns the text of a token.

    Attributes
    ----------
    deleted : tuple of int
        Positions. May be set.
    likeliest : list of (str, float)
        The five likeliest tokens with their probabilities, the likeliest first.
    """

    def __init__(
        self, words: Sequence[str], without: Callable[[Sequence[int]], np.ndarray], text_of: Callable[[int], str]
    ) -> None:
        self._without, self._text_of = without, text_of
        self._key, self._setting = uuid4().hex, False
        layout = ipywidgets.Layout(width="auto", margin="1px")
        style = ipywidgets.ToggleButton().style  # one for all: a saved notebook is smaller
        names = [word.strip(" ") if word.strip() else "⏎" if "\n" in word else "␣" for word in words]
        self.rows = [
            ipywidgets.ToggleButton(description=name, tooltip=f"row {at}", layout=layout, style=style)
            for at, name in enumerate(names)
        ]
        self._shown = ipywidgets.HTML()
        for row in self.rows:
            row.observe(self._follow, "value")
        super().__init__([ipywidgets.Box(self.rows, layout=ipywidgets.Layout(flex_flow="row wrap")), self._shown])
        self.add_class("kv-deletion")
        self._follow()

    @property
    def deleted(self) -> tuple[int, ...]:
        """Positions of the rows that are deleted."""
        return tuple(at for at, row in enumerate(self.rows) if row.value)

    @deleted.setter
    def deleted(self, positions: Sequence[int]) -> None:
        if wrong := [at for at in positions if not 0 <= at < len(self.rows)]:
            raise KvvizError(f"there is no row {wrong[0]}; the rows are 0 to {len(self.rows) - 1}")
        self._setting = True
        for at, row in enumerate(self.rows):
            row.value = at in positions
        self._setting = False
        self._follow()

    def _follow(self, change: Any = None) -> None:
        if self._setting:
            return
        gone = ", ".join(f"{at} {self.rows[at].description}" for at in self.deleted) or "none"
        title = f"<p>Rows deleted: {escape(gone)}</p>"
        try:
            found = self._without(self.deleted)
        except Exception as error:  # the buttons are pressed already: say that this is not their answer
            self._shown.value = f"{title}<p>{escape(f'{error}')}</p>"
            raise
        self.likeliest = [(self._text_of(int(token)), float(found[token])) for token in np.argsort(found)[:-6:-1]]
        lines = "".join(
            f'<tr><td style="text-align: left"><code>{escape(repr(text))}</code></td><td>{share:.1%}</td>'
            f'<td style="width: 12em; text-align: left"><span style="display: inline-block; height: .7em; '
            f'width: {12 * share:.2f}em; background: #3b82d6"></span></td></tr>'
            for text, share in self.likeliest
        )
        self._shown.value = f"{title}<table><tr><th>next token</th><th>p</th><th></th></tr>{lines}</table>"

    def _ipython_display_(self) -> None:
        """Show the buttons, and behind them in an output of its own what a reader sees where they cannot be."""
        display(super()._repr_mimebundle_(), raw=True)
        display({"text/html": stands_in(self._key, self._shown.value, "kv-deletion")}, raw=True)

    def __repr__(self) -> str:
        return f"<RowDeletion: {len(self.deleted)} of {len(self.rows)} rows deleted>"
