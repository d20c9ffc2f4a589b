"""One table of looks: how a state or an owner is drawn, in SVG and in matplotlib.

Hue alone carries no meaning: every entry also has a letter and a kind of border. The six hues of the states have a
colour distance of at least 19 (CIE Lab) for normal, protan, deutan and tritan vision.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Look:
    """How one state or owner is drawn.

    ``name``: key, e.g. ``"in_place"``.
    ``light, dark``: hue on a white and on a dark background, ``#rrggbb``.
    ``letter``: one character with the meaning of the hue; empty for the plain states.
    ``border``: ``"none"``, ``"thin"``, ``"solid"``, ``"dashed"``, ``"dotted"`` or ``"double"``.
    ``about``: text of the legend.
    """

    name: str
    light: str
    dark: str
    letter: str
    border: str
    about: str


@dataclass(frozen=True, slots=True)
class Theme:
    """Text and background colours of one theme, ``#rrggbb``."""

    ink: str
    soft: str
    line: str
    pane: str
    ground: str
    accent: str


LIGHT = Theme(ink="#1b2430", soft="#5b6675", line="#d5dae1", pane="#ffffff", ground="#f6f7f9", accent="#1f5fbf")
DARK = Theme(ink="#e6eaf0", soft="#9aa6b5", line="#39424e", pane="#1d232b", ground="#161b21", accent="#7fb0ff")

STATES: dict[str, Look] = {
    look.name: look
    for look in (
        Look("waiting", "#ffffff", "#1d232b", "", "thin", "has not run"),
        Look("frontier", "#f0e442", "#d8cc3a", "○", "dashed", "could run now"),
        Look("running", "#1f5fbf", "#7fb0ff", "▶", "solid", "this step"),
        Look("done", "#dfe3e8", "#36404c", "", "none", "has run, new buffer"),
        Look("in_place", "#009e73", "#2cc296", "↺", "solid", "ran in place"),
        Look("elsewhere", "#8a6100", "#c49a4a", "↷", "dashed", "called in place, wrote elsewhere"),
        Look("missed", "#d55e00", "#ff8a3d", "⚠", "double", "could not run in place"),
        Look("view", "#aa3377", "#d979b0", "v", "dotted", "a view, nothing written"),
        Look("foreign", "#6a5acd", "#a79bf5", "f", "dashed", "ran on a foreign kernel"),
    )
}

OWNERS: dict[str, Look] = {
    look.name: look
    for look in (
        Look("weights", "#8a94a3", "#5d6976", "W", "none", "weights"),
        Look("caller", "#5b6675", "#9aa6b5", "C", "dashed", "borrowed from the caller"),
        Look("donated", "#aa3377", "#d979b0", "D", "solid", "donated by the caller"),
        Look("run", "#009e73", "#2cc296", "R", "solid", "made by this run"),
        Look("pool", "#1f5fbf", "#7fb0ff", "P", "dotted", "taken from the pool"),
    )
}


def luminance(colour: tuple[float, ...]) -> float:
    """Relative luminance of an RGB(A) colour, 0 (black) to 1 (white); a transparent one counts as white."""
    red, green, blue, *alpha = colour
    shown = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    solid = alpha[0] if alpha else 1.0
    return shown * solid + (1.0 - solid)


def mix(colour: str, ground: str, share: float) -> str:
    """One ``#rrggbb`` colour over another with the opacity ``share``, so that no renderer needs opacity."""
    pairs = [(int(colour[i : i + 2], 16), int(ground[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(over * share + under * (1 - share)):02x}" for over, under in pairs)
