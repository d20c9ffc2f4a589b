"""kvviz: step through an ONNX graph and see who owns every buffer."""
