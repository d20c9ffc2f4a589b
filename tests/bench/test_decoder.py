"""The model that the benchmark makes is a decoder that onnxruntime agrees with."""

from __future__ import annotations

import numpy as np
import onnx

import kvviz
from tests.bench.decoder import Size, decoder
from tests.bench.measure import decode_feeds
from tests.ort_session import session_of

SMALL = Size(layers=2, hidden=64, heads=4, kv_heads=2, inner=96, vocabulary=96, positions=32)


def test_a_made_decoder_gives_the_logits_and_tokens_of_onnxruntime() -> None:
    # given
    proto = decoder(SMALL)
    onnx.checker.check_model(proto, full_check=True)
    session = session_of(proto, rewrite=True)
    # when
    trace = kvviz.decode(kvviz.load(proto), [3, 14, 15, 92], 8)
    # then
    for feeds, logits in zip(decode_feeds(kvviz.load(proto), [3, 14, 15, 92], 8), trace.logits, strict=True):
        expected = session.run(["logits"], feeds)[0][:, -1]
        np.testing.assert_allclose(logits, expected, atol=1e-3)
        assert logits.argmax() == expected.argmax()


def test_a_made_decoder_has_the_ops_of_an_exported_one() -> None:
    graph = kvviz.load(decoder(SMALL))
    layer = [n.op_type for n in graph.nodes if n.name.startswith("/model/layers.1/")]
    assert 45 <= len(layer) <= 60
    assert {pair.protocol for pair in kvviz.decode(graph, [1], 1).caches} == {"growing"}
    assert len(kvviz.decode(graph, [1], 1).caches) == 2 * SMALL.layers
