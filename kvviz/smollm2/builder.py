"""Collecting the nodes and weights of a graph, with names that say in which module they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from kvviz.smollm2.store import Store


class Builder:
    """Nodes, and the weights that they read; large ones go to the store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.scope = ""
        self.nodes: list[NodeProto] = []
        self.weights: dict[str, TensorProto] = {}
        self._names: dict[str, int] = {}

    def op(self, op: str, *inputs: str, name: str = "", output: str = "", domain: str = "", **attributes: Any) -> str:
        """Add a node of one output, and give that output's name; ``name`` is the module within the scope, as
        ``"q_proj"``."""
        return self.node(op, inputs, (output,), name, domain, **attributes)[0]

    def node(
        self,
        op: str,
        inputs: Sequence[str],
        outputs: Sequence[str | None],
        name: str = "",
        domain: str = "",
        **attributes: Any,
    ) -> tuple[str, ...]:
        """Add a node. Outputs without a name (``""``) are called after it; None stands for one that nobody reads."""
        full = self._unique("/".join(filter(None, (self.scope, name, op))))
        made = tuple("" if out is None else out or f"{full}_output_{i}" for i, out in enumerate(outputs))
        self.nodes.append(helper.make_node(op, inputs, made, full, domain=domain, **attributes))
        return made

    def weight(self, name: str, array: np.ndarray) -> str:
        self.weights[name] = self.store.add(name, array)
        return name

    def constant(self, name: str, array: np.ndarray | np.generic) -> str:
        """Keep a small weight in the model itself; of one name there is one."""
        if name not in self.weights:
            self.weights[name] = numpy_helper.from_array(np.asarray(array), name)
        return name

    def ints(self, *values: int) -> str:
        return self.constant(f"ints.{'_'.join(map(str, values))}", np.array(values, np.int64))

    def _unique(self, name: str) -> str:
        seen = self._names.get(name, 0)
        self._names[name] = seen + 1
        return f"{name}_{seen}" if seen else name
