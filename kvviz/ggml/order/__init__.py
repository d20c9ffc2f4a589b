"""Which order, which memory: the allocator, re-order rules of back ends, and what another order breaks."""
