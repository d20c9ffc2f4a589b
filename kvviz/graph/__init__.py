"""What runs: graphs, nodes and values, and reading them from ONNX models."""

from kvviz.graph.loading.load import load
from kvviz.graph.model import Graph, Node, Value

__all__ = ["Graph", "Node", "Value", "load"]
