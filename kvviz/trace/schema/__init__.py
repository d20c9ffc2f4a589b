"""What a trace records: the log and the events, storages and regions in it."""
