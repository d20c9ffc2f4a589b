"""Decoders as ONNX graphs: a builder of nodes and weights, the forms of a cache, and the layers."""
