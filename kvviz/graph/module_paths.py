"""Module paths: which part of the original network a node came from, by exporters' traces of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence

from kvviz.graph.topological_order import needs_of

Scope = tuple[str, ...]

_TORCH = "pkg.torch.onnx.name_scopes"
_ONNXSCRIPT = "pkg.onnxscript.name_scopes"
_NO_MODULE = "_empty_nn_module_stack_from_metadata_hook"
# A dotted name is a module path only if more follows a numbered part, as in model.layers.0.mlp.
_DOTTED = re.compile(r"^(?:v_)?[A-Za-z_]\w*(?:\.\w+)*?\.\d+(?:\.\w+)+$")
_CACHE = re.compile(r"^(past|present)(_key_values|_states)?\.")
_DEEPEST = 24
_NUMBER = re.compile(r"^\d+$")


def module_paths(
    names: Sequence[str],
    inputs: Sequence[Sequence[str]],
    outputs: Sequence[Sequence[str]],
    metadata: Sequence[Mapping[str, str]],
) -> list[Scope]:
    """Module path of every node of a graph, outermost module first; ``()`` if it is unknown.

    Sources, in this order: metadata of torch.onnx (``pkg.torch.onnx.name_scopes``), onnxscript
    (``pkg.onnxscript.name_scopes``) and ``namespace``; node names like ``/model/layers.0/mlp/MatMul``; value names of
    that kind. Other nodes take the path that the nodes around them have in common.
    """
    # The onnxruntime-genai builder names a node below another node: .../Sub and .../Sub/Cast. A node is no module.
    nodes = {name.strip("/") for name in names if "/" in name}
    scopes = [_stated(*of_node) for of_node in zip(names, outputs, metadata)]
    return _adopt([scope and _without_nodes(scope[:_DEEPEST], nodes) for scope in scopes], inputs, outputs)


def split_path(text: str) -> Scope:
    """A module path as parts, a number kept with the part that it counts: ``("model", "layers.0", "self_attn")``."""
    parts: list[str] = []
    separator = "/" if "/" in text else "."
    for part in text.split(separator):
        if _NUMBER.match(part) and parts:
            parts[-1] += f".{part}"
        elif part:
            parts.append(part)
    return tuple(parts)


def _stated(name: str, outputs: Sequence[str], metadata: Mapping[str, str]) -> Scope | None:
    """The path that one node states: None for nothing, ``()`` for the outermost module."""
    for key, last_is_node in ((_TORCH, True), (_ONNXSCRIPT, False)):
        scopes = _text_list(metadata.get(key, ""))
        if scopes:
            return None if _NO_MODULE in scopes else _from_scopes(scopes[:-1] if last_is_node else scopes)
    if metadata.get("namespace"):
        return _from_namespace(metadata["namespace"])
    for text in (name, *outputs):
        # TensorFlow joins the names of fused nodes by semicolons.
        text = text.split(";")[0]
        if "/" in text and "://" not in text:
            return split_path(text.rpartition("/")[0] + "/")
        if _DOTTED.match(text) and not _CACHE.match(text):
            return split_path(text.removeprefix("v_").rpartition(".")[0])
    return None


def _text_list(text: str) -> list[str]:
    """A Python list of strings as written by the exporters; empty for anything else."""
    # Names of models are untrusted: literals only, and nothing long enough to exhaust the parser.
    if not text.startswith("[") or len(text) > 20_000:
        return []
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []
    return value if isinstance(value, list) and all(isinstance(item, str) for item in value) else []


def _from_scopes(scopes: Sequence[str]) -> Scope:
    """Parts of nested names: ``["", "m", "m.layers.0"]`` (each with its parents) or ``["", "m", "layers.0"]``."""
    parts: list[str] = []
    parent = ""
    for scope in scopes:
        if not scope:
            continue
        own = scope.removeprefix(f"{parent}.") if parent else scope
        # Numbers may come alone: ["layers", "layers.0"].
        if _NUMBER.match(own) and parts:
            parts[-1] += f".{own}"
        else:
            parts.extend(split_path(own))
        parent = scope
    return tuple(parts)


def _from_namespace(text: str) -> Scope:
    """Parts of ``: Root/m: Class/m.layers: Class/add: aten.add``; the last one may be an operation."""
    pairs = [part.partition(":") for part in text.split("/")]
    modules = [name.strip() for name, _, kind in pairs if not kind.strip().startswith(("aten.", "prims.", "<built-in"))]
    return _from_scopes(modules)


def _without_nodes(scope: Scope, nodes: set[str]) -> Scope:
    while scope and "/".join(scope) in nodes:
        scope = scope[:-1]
    return scope


def _adopt(
    stated: Sequence[Scope | None], inputs: Sequence[Sequence[str]], outputs: Sequence[Sequence[str]]
) -> list[Scope]:
    """Give nodes without a path the one that their neighbours along the data have in common."""
    scopes = list(stated)
    waiting = [i for i, scope in enumerate(scopes) if scope is None]
    around = _neighbours(inputs, outputs) if waiting else []
    # Chains of nameless nodes are filled from their ends, one node per round.
    for _ in range(8):
        found = {i: common_path([scope for j in around[i] if (scope := scopes[j]) is not None]) for i in waiting}
        if not any(found.values()):
            break
        for i, scope in found.items():
            scopes[i] = scope or None
        waiting = [i for i in waiting if scopes[i] is None]
    return [scope or () for scope in scopes]


def _neighbours(inputs: Sequence[Sequence[str]], outputs: Sequence[Sequence[str]]) -> list[set[int]]:
    """Positions of the nodes that each node takes a value from or gives one to."""
    needs = needs_of(inputs, outputs)
    around = [set(before) for before in needs]
    for i, before in enumerate(needs):
        for j in before:
            around[j].add(i)
    return around


def common_path(scopes: Sequence[Scope]) -> Scope:
    if not scopes:
        return ()
    low, high = min(scopes), max(scopes)
    same = 0
    while same < min(len(low), len(high)) and low[same] == high[same]:
        same += 1
    return low[:same]
