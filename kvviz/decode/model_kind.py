"""What kind of model a graph is: whether it can be decoded token by token, and otherwise what it is.

The configuration beside the model decides first (the class name in Hugging Face's libraries), then the graph: names and
types of inputs and outputs, and whether it scores the vocabulary that it reads.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from kvviz.decode.plausible_values import shape_of
from kvviz.graph.cache_pairs import CachePair, cache_pairs
from kvviz.graph.input_roles import control_inputs, index_range, logits_output
from kvviz.graph.model import Graph

_SPEECH = re.compile(
    r"^(input_features|input_values|audio\w*|speech|waveform|wav|mel\w*|features|fbank)$", re.IGNORECASE
)
_VISION = re.compile(r"^(pixel_values|images?|img|x_image)$", re.IGNORECASE)
_DECODER = "a text decoder"
# Endings of class names in config.json's "architectures", and the kinds of such models.
_CLASSES = (
    ("ForMaskedLM", "a masked language model"),
    ("ForSequenceClassification", "a text classifier"),
    ("ForTokenClassification", "a token classifier"),
    ("ForQuestionAnswering", "a model that marks answers in a text"),
    ("ForMultipleChoice", "a model that chooses among texts"),
    ("ForCTC", "a speech recogniser that scores every frame (CTC)"),
    ("ForAudioClassification", "an audio classifier"),
    ("ForImageClassification", "an image classifier"),
    ("ForCausalLM", _DECODER),
    ("LMHeadModel", _DECODER),
)


@dataclass(frozen=True, slots=True)
class ModelKind:
    """Attributes
    ----------
    name : str
        For example ``"a text decoder"``, ``"an embedding model"``, ``"the decoder of an encoder-decoder model"``.
    decodes : bool
        Whether tokens can be fed one by one, each chosen by the scores before it.
    reads_text : bool
        Whether it takes token numbers.
    needs : tuple of str
        Inputs that another graph makes, as the encoder's states.
    why : str
        Why it does not decode, where its inputs and outputs alone do not say so.
    """

    name: str
    decodes: bool
    reads_text: bool
    needs: tuple[str, ...] = ()
    why: str = ""


def model_kind(graph: Graph) -> ModelKind:
    """Say what a main graph is.

    >>> model_kind(kvviz.load("all-MiniLM-L6-v2")).name                         # doctest: +SKIP
    'an embedding model'
    """
    roles, names = control_inputs(graph), [value.name for value in graph.inputs]
    pairs, reads = cache_pairs(graph), "tokens" in roles
    said = _configured(graph)
    crossing = tuple(roles[role] for role in ("encoder_hidden_states",) if role in roles)
    if crossing or any(pair.protocol == "cross" for pair in pairs):
        return ModelKind(
            "the decoder of an encoder-decoder model", reads and logits_output(graph) is not None, reads, crossing
        )
    if any(map(_SPEECH.match, names)):
        encodes = logits_output(graph) is None
        return ModelKind(
            said if said and "speech" in said else "a speech encoder" if encodes else "a speech model", False, reads
        )
    if any(map(_VISION.match, names)):
        return ModelKind("a model of images and text" if reads else said or "a model of images", False, reads)
    if not reads:
        streams = any(pair.protocol in ("state", "window") for pair in pairs)
        return ModelKind("a model that carries a state on" if streams else "a model that takes no tokens", False, False)
    if said and said != _DECODER:
        return ModelKind(said, False, True, why="its config.json says so")
    if _is_embedding(graph) and not pairs:
        two_parts = graph.companions is not None and graph.companions.config.get("is_encoder_decoder") is True
        name = "the encoder of an encoder-decoder model" if two_parts else "an embedding model"
        return ModelKind(name, False, True)
    logits = logits_output(graph)
    if logits is None:
        return ModelKind("a model that reads tokens and scores none", False, True)
    keeps_rows = any(pair.protocol not in ("state", "cross") for pair in pairs)
    return _scoring(graph, roles["tokens"], logits, said is not None or keeps_rows, pairs)


def _scoring(graph: Graph, tokens: str, logits: str, surely: bool, pairs: tuple[CachePair, ...]) -> ModelKind:
    """The kind of a graph that scores something for tokens. It decodes if it scores the tokens that it reads, and each
    is scored by those before it, as shown by its configuration or its caches (``surely``), or its ops."""
    table, shape = index_range(graph, tokens, shape_of), shape_of(graph, logits)
    read, scored = table and table.high, shape[-1] if shape and isinstance(shape[-1], int) else None
    # The table of a decoder may be padded with rows that are scored for no token.
    if read and scored and (scored > read or (scored < read and not surely)):
        name = f"a {'text' if len(shape) == 2 else 'token'} classifier"
        return ModelKind(name, False, True, why=f"it reads {read:,} tokens and scores {scored:,} classes")
    if surely or any(pair.protocol == "state" for pair in pairs) or _looks_back(graph):
        return ModelKind(_DECODER, True, True)
    if not (read and scored):
        why = "nothing says that what it scores are the tokens that it reads"
        return ModelKind("a model that scores tokens", False, True, why=why)
    why = "nothing in the graph hides later tokens from earlier ones"
    return ModelKind("a masked language model", False, True, why=why)


# Operators in which a token sees only earlier ones.
_ONE_WAY = frozenset({"GroupQueryAttention", "PagedAttention", "SparseAttention", "LinearAttention", "Trilu"})
_ONE_WAY |= {"CausalConvWithState"}
_RECURRENT = frozenset({"LSTM", "GRU", "RNN"})
_COMPARES = frozenset({"Less", "LessOrEqual", "Greater", "GreaterOrEqual"})
_COUNTS = frozenset({"Range", "CumSum"})
_MEASURES = frozenset({"Shape", "Size", "ConstantOfShape"})
# The inputs whose numbers an operator's output has; by default the first one.
_BOTH = frozenset({"Add", "Sub", "Mul", "Concat", "Where", "Max"})
_CORNER = 8


def _looks_back(graph: Graph) -> bool:
    """Whether an op hides later tokens from earlier ones: attention or a recurrence of one direction, a triangle, or a
    comparison of positions with positions."""
    recurrent = []
    positions = {name for role, name in control_inputs(graph).items() if "position" in role}
    for inner, node in graph.walk():
        given = node.attributes
        if given.get("is_causal") or given.get("unidirectional") or node.op_type in _ONE_WAY:
            return True
        if node.op_type in _COMPARES and all(_counts(inner, name, positions) for name in node.inputs):
            return True
        if node.op_type in _RECURRENT:
            recurrent.append(given.get("direction", "forward") in ("forward", b"forward"))
        elif not {"MatMul", "Gemm", "Conv"} & {node.op_type} and any(_is_triangle(inner, name) for name in node.inputs):
            return True
    return bool(recurrent) and all(recurrent)


def _counts(graph: Graph, name: str, positions: Collection[str]) -> bool:
    """Whether a value holds positions: an input, counted by the graph, or a weight."""
    stack, seen = [name], set()
    while stack:
        name = stack.pop()
        if not name or name in seen:
            continue
        seen.add(name)
        node = graph.producers.get(name)
        if name in graph.weights:
            array = graph.weights[name]
            if array.size > 1 and array.dtype.kind in "iu":
                return True
        elif name in positions or (node is not None and node.op_type in _COUNTS):
            return True
        elif node is not None and node.op_type not in _MEASURES:
            stack += node.inputs if node.op_type in _BOTH else node.inputs[:1]
    return False


def _is_triangle(graph: Graph, name: str) -> bool:
    """Whether a value is a weight with one number on and below its diagonal, and another above."""
    shape = shape_of(graph, name) if name in graph.weights else ()
    if len(shape) < 2 or shape[-1] != shape[-2] or any(n != 1 for n in shape[:-2]) or shape[-1] in (0, 1):
        return False
    corner = graph.weights[name].reshape(shape[-2:])[:_CORNER, :_CORNER]
    lower = np.tri(len(corner), dtype=bool)
    below, above = corner[lower], corner[~lower]
    return bool((below == below[0]).all() and (above == above[0]).all() and below[0] != above[0])


def _configured(graph: Graph) -> str | None:
    config = {} if graph.companions is None else graph.companions.config
    classes = config.get("architectures")
    first = classes[0] if isinstance(classes, list) and classes and isinstance(classes[0], str) else ""
    return next((what for end, what in _CLASSES if first.endswith(end)), None)


def _is_embedding(graph: Graph) -> bool:
    """Whether the outputs are states of tokens or of a text, by their names."""
    words = re.compile(r"hidden_state|embedding|pooler|pooled|sentence", re.IGNORECASE)
    outputs = [value.name for value in graph.outputs]
    return bool(outputs) and all(words.search(name) for name in outputs)
