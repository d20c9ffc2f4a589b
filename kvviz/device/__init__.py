"""A simulated device: tensors that live there between programs, and readers of what compilers for one say."""
