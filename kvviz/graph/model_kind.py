"""What kind of model a graph is: whether it can be decoded token by token, and what it is where it cannot.

The configuration beside the model is asked first (what Hugging Face's libraries call its class), then the graph: the
names and types of what goes in and comes out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kvviz.graph.cache_names import control_inputs, logits_output
from kvviz.graph.cache_pairs import cache_pairs
from kvviz.graph.model import Graph

_SPEECH = re.compile(
    r"^(input_features|input_values|audio\w*|speech|waveform|wav|mel\w*|features|fbank)$", re.IGNORECASE
)
_VISION = re.compile(r"^(pixel_values|images?|img|x_image)$", re.IGNORECASE)
# Ends of the names of classes in config.json's "architectures", and what such a model is.
_CLASSES = (
    ("ForMaskedLM", "a masked language model"),
    ("ForSequenceClassification", "a text classifier"),
    ("ForTokenClassification", "a token classifier"),
    ("ForQuestionAnswering", "a model that marks answers in a text"),
    ("ForMultipleChoice", "a model that chooses among texts"),
    ("ForCTC", "a speech recogniser that scores every frame (CTC)"),
    ("ForAudioClassification", "an audio classifier"),
    ("ForImageClassification", "an image classifier"),
    ("ForCausalLM", "a text decoder"),
    ("LMHeadModel", "a text decoder"),
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
    """

    name: str
    decodes: bool
    reads_text: bool
    needs: tuple[str, ...] = ()


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
    if said and said != "a text decoder":
        return ModelKind(said, False, True)
    if _is_embedding(graph) and not pairs:
        return ModelKind(
            "the encoder of an encoder-decoder model" if _two_parts(graph) else "an embedding model", False, True
        )
    if logits_output(graph) is None:
        return ModelKind("a model that reads tokens and scores none", False, True)
    if not pairs and said is None and "token_type_ids" in roles:
        return ModelKind("a text classifier or masked language model", False, True)
    return ModelKind("a text decoder", True, True)


def _configured(graph: Graph) -> str | None:
    config = {} if graph.companions is None else graph.companions.config
    classes = config.get("architectures")
    first = classes[0] if isinstance(classes, list) and classes and isinstance(classes[0], str) else ""
    return next((what for end, what in _CLASSES if first.endswith(end)), None)


def _two_parts(graph: Graph) -> bool:
    return graph.companions is not None and graph.companions.config.get("is_encoder_decoder") is True


def _is_embedding(graph: Graph) -> bool:
    """Whether what comes out are states of tokens or of a text, by their names."""
    telling = re.compile(r"hidden_state|embedding|pooler|pooled|sentence", re.IGNORECASE)
    outputs = [value.name for value in graph.outputs]
    return bool(outputs) and all(telling.search(name) for name in outputs)
