"""Jobs: the record, its state machine, what follows an attempt, leases."""
