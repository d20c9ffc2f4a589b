"""The layer of the model that a node belongs to, by llama.cpp's names: ``Kcur-3``, ``cache_k_l3``, ``blk.3.…``."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kvviz.ggml.tensor import Tensor

# Behind the number there may be what ggml adds for views and copies.
_OWN = re.compile(r"^[^ ]*?(?:-|_l)(\d{1,5})(?: \(.*)?$")
_WEIGHT = re.compile(r"^(?:enc\.|dec\.)?blk\.(\d{1,5})\.")


def layers_of(nodes: Sequence[Tensor]) -> list[int | None]:
    """The layer of each node; None for those of no layer.

    A node says it by its own name, else by the weight or cache that it uses. One that says nothing, in the midst of
    those of a layer, is of the layer that it continues, if that has not ended, or of that one: ggml's order mixes the
    end of a layer with the start of the next.
    """
    places = {node: place for place, node in enumerate(nodes)}
    said = [_said(node) for node in nodes]
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for place, layer in enumerate(said):
        if layer is not None:
            first.setdefault(layer, place)
            last[layer] = place
    found: list[int | None] = list(said)
    # Layers begin one after the other, so the one that began last is the innermost.
    begun: list[int] = []
    for place, layer in enumerate(said):
        if layer is not None and first[layer] == place:
            begun.append(layer)
        while begun and last[begun[-1]] <= place:
            begun.pop()
        if layer is None and begun:
            made = (found[places[source]] for source in nodes[place].src if source in places)
            open_ = (layer for layer in made if layer is not None and last[layer] > place)
            found[place] = max(open_, default=begun[-1])
    return found


def _said(node: Tensor) -> int | None:
    names = [node.name, *(source.name for source in node.src if source is not None and source.role)]
    for pattern in (_OWN, _WEIGHT):
        for name in names:
            match = pattern.match(name)
            if match:
                return int(match[1])
    return None
