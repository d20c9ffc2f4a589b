"""DeepSeek's differences from Llama: attention over latents, and experts chosen by a router.

A row of the cache is a latent and a rotated key; all heads share both. The products that would expand a latent into
each head's keys and values are applied to the queries and to the result instead, so that no row is expanded.
"""

from __future__ import annotations

from kvviz.decoders.operator_forms import AttentionForm
from kvviz.decoders.parts import Parts


def latent_attention(parts: Parts, layer: int, x: str) -> str:
    build, form, shape, sizes, theirs = parts.build, parts.form, parts.shape, parts.shape.latent, f"blk.{layer}.attn"
    assert sizes is not None
    q = parts.linear(x, "q_a_proj", f"{theirs}_q_a", shape.hidden, sizes.queries)
    q, _ = parts.norm(q, "", "q_a_layernorm", f"{theirs}_q_a_norm", sizes.queries)
    size = sizes.plain + sizes.rotary
    q = form.to_heads(parts.linear(q, "q_b_proj", f"{theirs}_q_b", sizes.queries, shape.heads * size), shape.heads, "q")
    plain, turned = build.node("Split", (q, build.ints(sizes.plain, sizes.rotary)), ("", ""), "q", axis=-1)
    turned = form.rotated(layer, turned, 0, "q_rope")
    rows = parts.linear(x, "kv_a_proj_with_mqa", f"{theirs}_kv_a_mqa", shape.hidden, sizes.rank + sizes.rotary)
    latent, key = build.node("Split", (rows, build.ints(sizes.rank, sizes.rotary)), ("", ""), "kv", axis=-1)
    latent, _ = parts.norm(latent, "", "kv_a_layernorm", f"{theirs}_kv_a_norm", sizes.rank)
    one = build.ints(1)
    key = build.op("Squeeze", form.rotated(layer, build.op("Unsqueeze", key, one), 0, "k_rope"), one)
    latents, keys = (
        form.keep(layer, kind, new, 0, width)
        for kind, new, width in zip(form.kinds, (latent, key), (sizes.rank, sizes.rotary))
    )
    # Queries are projected into the latent space instead of expanding the keys.
    plain = _by_head(parts, plain, "k_b_proj", f"{theirs}_k_b", sizes.plain, sizes.rank)
    shared = build.op("Unsqueeze", latents, one, name="latents")
    if isinstance(form, AttentionForm):
        # The operator takes keys as one tensor.
        whole = build.op("Unsqueeze", build.op("Concat", latents, keys, name="keys", axis=-1), one, name="keys")
        queries = build.op("Concat", plain, turned, name="queries", axis=-1)
        mixed = form.over(layer, queries, whole, shared, scale=shape.score_scale)
    else:
        found = _products(parts, plain, shared), _products(parts, turned, build.op("Unsqueeze", keys, one))
        scores = build.op("Add", *found)
        scores = build.op("Mul", scores, build.number("scale", shape.score_scale))
        mixed = build.op("MatMul", form.shares(scores, form.bias(layer)), shared)
    mixed = form.from_heads(_by_head(parts, mixed, "v_b_proj", f"{theirs}_v_b", sizes.rank, sizes.value), sizes.value)
    return parts.linear(mixed, "o_proj", f"{theirs}_output", shape.heads * sizes.value, shape.hidden)


def _by_head(parts: Parts, x: str, module: str, theirs: str, inputs: int, outputs: int) -> str:
    """A product with a separate weight for each head."""
    weight = parts.source.tensor(theirs, parts.shape.heads, inputs, outputs)
    return parts.build.op("MatMul", x, parts.weight(f"{module}.weight", weight), name=module)


def _products(parts: Parts, queries: str, keys: str) -> str:
    return parts.build.op("MatMul", queries, parts.build.op("Transpose", keys, perm=[0, 1, 3, 2]))


def experts(parts: Parts, layer: int, x: str) -> str:
    """The experts' feed-forward part as one wide product, in which each token weights the experts that it chose.

    ONNX has no operator for this, so all experts are computed. The groups that limit DeepSeek's router are left out:
    they only affect which experts are chosen.
    """
    build, shape, sizes, theirs = parts.build, parts.shape, parts.shape.experts, f"blk.{layer}.ffn"
    assert sizes is not None
    fit = build.op("Sigmoid", parts.linear(x, "gate", f"{theirs}_gate_inp", shape.hidden, sizes.count), name="gate")
    bias = parts.weight("gate.e_score_correction_bias", parts.source.tensor(f"{theirs}_exp_probs_b", sizes.count))
    ranked = build.op("Add", fit, bias, name="gate")
    best, _ = build.node("TopK", (ranked, build.ints(sizes.chosen)), ("", ""), "gate", axis=-1)
    # By comparison, not by the indices of the best, so that no write depends on data.
    chosen = build.op("GreaterOrEqual", ranked, build.op("ReduceMin", best, build.ints(-1), name="gate"), name="gate")
    shares = build.op("Where", chosen, fit, build.number("nothing", 0), name="gate")
    shares = build.op("Div", shares, build.op("ReduceSum", shares, build.ints(-1), name="gate"), name="gate")
    shares = build.op("Mul", shares, build.number("expert_scale", sizes.scale), name="gate")
    wide = sizes.count * sizes.inner
    gate = parts.linear(x, "experts.gate_proj", f"{theirs}_gate_exps", shape.hidden, wide)
    up = parts.linear(x, "experts.up_proj", f"{theirs}_up_exps", shape.hidden, wide)
    y = build.op("Reshape", build.op("Mul", parts.bent(gate), up), build.ints(0, 0, sizes.count, sizes.inner))
    y = build.op("Mul", y, build.op("Unsqueeze", shares, build.ints(-1)))
    y = build.op("Reshape", y, build.ints(0, 0, wide))
    y = parts.linear(y, "experts.down_proj", f"{theirs}_down_exps", wide, shape.hidden)
    common = parts.feed_forward(x, f"{theirs}_shared", sizes.shared * sizes.inner, "shared_experts")
    return build.op("Add", y, common)
