"""What a device does at run time: tensors, programs, ownership, caches."""
