"""onnxruntime's CPU allocation planner, as a policy: its order, its shapes, its tables, its plan."""
