"""The decoder that all forms and families share: embedding, layers of normed blocks, and the head."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from kvviz.decoders.builder import Builder, Keeper
from kvviz.decoders.decoder_shape import Shape
from kvviz.decoders.forms import Form, capped
from kvviz.decoders.parts import (
    Parts,
    Weights,
    cross_attention,
    experts,
    latent_attention,
    plain_attention,
    plain_feed_forward,
)

_LENGTHS = {"attention_mask": ("batch", "total"), "cache_position": ("new",)}
_BATCH_ONLY = ("write_indices", "nonpad_kv_seqlen")


class _Block(NamedTuple):
    """A block that is added to the residual stream; ``run(parts, layer, x)`` builds it from the normed stream."""

    module: str
    norm: str
    theirs: str  # the norm's name in GGUF
    run: Callable[[Parts, int, str], str]
    after: str = ""  # a norm of the block's output


def decoder(
    source: Weights, form: type[Form], store: Keeper, dtype: DTypeLike = np.float32, name: str = "smollm2"
) -> ModelProto:
    """Build the graph, writing weights to the store as they are read.

    Inputs are ``input_ids``, further inputs of the form (masks, positions, int64), and ``past_key_values.N.key|value``,
    ``(batch, key heads, past, head size)``. Outputs are ``logits`` of the last position, ``(batch, 1, vocabulary)``,
    and ``present.N.key|value``. ``dtype`` is the type of all floating-point values.
    """
    build, shape = Builder(store, dtype), source.shape
    parts = Parts(source, form(build, shape), build)
    hidden, head = _embedding(parts)
    for layer in range(shape.layers):
        parts.form.prepare(shape.sight(layer))
    rest = ""
    for layer in range(shape.layers):
        for block in _blocks(shape):
            hidden, rest = _added(parts, layer, block, hidden, rest)
    build.scope = "/model"
    if rest:
        hidden = build.op("Add", hidden, rest)
    # Only the last position is scored: a decode needs no other, and the head is the largest product.
    hidden = build.op("Gather", hidden, build.ints(-1), name="last", axis=1)
    normed, _ = parts.norm(hidden, "", "norm", "output_norm", shape.hidden)
    build.scope = "/lm_head"
    if not shape.tied:
        head = build.weight("lm_head.weight", source.matrix("output.weight", shape.hidden, shape.vocabulary))
    if shape.logit_cap:
        capped(build, build.op("MatMul", normed, head), shape.logit_cap, "logit_cap", output="logits")
    else:
        build.op("MatMul", normed, head, output="logits")
    source.finish()
    return _model(build, parts.form, name)


def _embedding(parts: Parts) -> tuple[str, str]:
    """Embeddings of the tokens, and their weight if the head shares it. A shared weight is kept once, as ``(hidden,
    vocabulary)`` for the head: a product with one row is about twice as fast, and gathering a few columns is cheap."""
    build, shape = parts.build, parts.shape
    build.scope = "/model/embed_tokens"
    weight, table = parts.source.matrix("token_embd.weight", shape.hidden, shape.vocabulary), ""
    if shape.tied:
        table = build.weight("model.embed_tokens.weight", weight)
        columns = build.op("Gather", table, "input_ids", axis=1)
        rows = build.op("Transpose", columns, perm=[1, 2, 0])
    else:
        rows = build.op("Gather", build.weight("model.embed_tokens.weight", weight.T), "input_ids")
    if shape.gemma:
        rows = build.op("Mul", rows, build.number("embedding_scale", shape.hidden**0.5))
    if shape.encoder_rows:
        build.scope = "/model/embed_positions"
        learned = parts.source.tensor("position_embd.weight", shape.positions, shape.hidden)
        places = build.op("Gather", build.weight("model.embed_positions.weight", learned), parts.form.positions)
        rows = build.op("Add", rows, places)
    return rows, table


def _blocks(shape: Shape) -> tuple[_Block, ...]:
    if shape.encoder_rows:
        return (
            _Block("self_attn", "self_attn_layer_norm", "attn_norm", plain_attention),
            _Block("encoder_attn", "encoder_attn_layer_norm", "cross_attn_norm", cross_attention),
            _Block("mlp", "final_layer_norm", "ffn_norm", plain_feed_forward),
        )
    attend = latent_attention if shape.latent else _attention
    if shape.gemma:
        return (
            _Block("self_attn", "input_layernorm", "attn_norm", attend, "post_attention_layernorm"),
            _Block("mlp", "pre_feedforward_layernorm", "ffn_norm", _feed_forward, "post_feedforward_layernorm"),
        )
    return (
        _Block("self_attn", "input_layernorm", "attn_norm", attend),
        _Block("mlp", "post_attention_layernorm", "ffn_norm", _feed_forward),
    )


def _added(parts: Parts, layer: int, block: _Block, hidden: str, rest: str) -> tuple[str, str]:
    """Add one block. It takes and returns the residual stream and the value still to be added to it."""
    build, width, theirs, scope = parts.build, parts.shape.hidden, f"blk.{layer}", f"/model/layers.{layer}"
    build.scope = scope
    x, hidden = parts.norm(hidden, rest, block.norm, f"{theirs}.{block.theirs}", width)
    build.scope = f"{scope}/{block.module}"
    x = block.run(parts, layer, x)
    build.scope = scope
    if block.after:
        x, _ = parts.norm(x, "", block.after, f"{theirs}.{block.after}", width)
    return (hidden, x) if parts.form.adds_in_norm else (build.op("Add", hidden, x), "")


def _attention(parts: Parts, layer: int, x: str) -> str:
    shape = parts.shape
    mixed = parts.form.attend(layer, _projected(parts, layer, x))
    return parts.linear(mixed, "o_proj", f"blk.{layer}.attn_output", shape.heads * shape.head, shape.hidden)


def _projected(parts: Parts, layer: int, x: str) -> tuple[str, ...]:
    """Queries, keys and values; side by side in one value if the form packs them."""
    shape, theirs, source = parts.shape, f"blk.{layer}.attn", parts.source
    sizes = {"q": shape.heads * shape.head, "k": shape.kv_heads * shape.head, "v": shape.kv_heads * shape.head}
    turned = {"q": shape.heads, "k": shape.kv_heads, "v": 0}
    weights = {n: source.matrix(f"{theirs}_{n}.weight", shape.hidden, sizes[n], turned[n]) for n in sizes}
    biases = {n: source.tensor(f"{theirs}_{n}.bias", sizes[n]) for n in sizes} if shape.biased else {}
    if parts.form.packed and not shape.head_norms:
        weights, biases = ({"qkv": source.joined(list(found.values()))} if found else {} for found in (weights, biases))
    made = {n: parts.product(x, f"{n}_proj", weight, biases.get(n)) for n, weight in weights.items()}
    if shape.head_norms:
        made |= {n: _normed_heads(parts, made[n], n, f"{theirs}_{n}_norm") for n in "qk"}
    return tuple(made.values())


def _normed_heads(parts: Parts, x: str, name: str, theirs: str) -> str:
    build, size = parts.build, parts.shape.head
    apart = build.op("Reshape", x, build.ints(0, 0, -1, size), name=f"{name}_norm")
    normed, _ = parts.norm(apart, "", f"{name}_norm", theirs, size)
    return build.op("Reshape", normed, build.ints(0, 0, -1), name=f"{name}_norm")


def _feed_forward(parts: Parts, layer: int, x: str) -> str:
    chosen = parts.shape.experts
    if chosen and layer >= chosen.first:
        return experts(parts, layer, x)
    return parts.feed_forward(x, f"blk.{layer}.ffn", parts.shape.inner)


def _model(build: Builder, form: Form, name: str) -> ModelProto:
    def control(name: str) -> ValueInfoProto:
        if name == "use_cache_branch":
            return helper.make_tensor_value_info(name, TensorProto.BOOL, [1])
        dims = ("batch",) if name in _BATCH_ONLY else _LENGTHS.get(name, ("batch", "new"))
        return helper.make_tensor_value_info(name, TensorProto.INT64, dims)

    kind = helper.np_dtype_to_tensor_dtype(build.dtype)
    scores = helper.make_tensor_value_info("logits", kind, ["batch", 1, form.shape.vocabulary])
    outputs = [scores, *form.presents]
    nodes = _merged(build, form, outputs) if form.merged else build.nodes
    graph = helper.make_graph(
        nodes, name, [*map(control, form.inputs), *form.pasts], outputs, list(build.weights.values())
    )
    opsets = [helper.make_opsetid("", form.opset)]
    if form.microsoft:
        opsets.append(helper.make_opsetid("com.microsoft", 1))
    return helper.make_model(graph, opset_imports=opsets, ir_version=form.ir_version, producer_name="kvviz")


def _merged(build: Builder, form: Form, outputs: list[ValueInfoProto]) -> list[NodeProto]:
    """An If of two graphs with the same weights: one appends to the cache, the other creates it."""
    pasts, first = {value.name for value in form.pasts}, build.ints(0)
    # Values in a body must not have names of the outer graph.
    inside = {value.name: f"{value.name}_in_branch" for value in outputs}
    # Replacements, in the graph of the prompt, for values that depend on the cache.
    instead: dict[str, str] = {}
    for node in build.nodes:
        if node.input[0] in pasts and node.op_type in ("Concat", "Shape"):
            instead[node.output[0]] = first if node.op_type == "Shape" else node.input[1]

    def branch(names: dict[str, str], without: Container[str]) -> GraphProto:
        nodes, made = [node for node in build.nodes if node.output[0] not in without], []
        for node in nodes:
            made.append(NodeProto())
            made[-1].CopyFrom(node)
            made[-1].input[:] = [names.get(name, name) for name in node.input]
            made[-1].output[:] = [names.get(name, name) for name in node.output]
        given = [ValueInfoProto(name=names[value.name], type=value.type) for value in outputs]
        return helper.make_graph(made, "branch", [], given)

    branches = {"then_branch": branch(inside, ()), "else_branch": branch({**inside, **instead}, instead)}
    return [helper.make_node("If", ["use_cache_branch"], [value.name for value in outputs], "optimum::if", **branches)]
