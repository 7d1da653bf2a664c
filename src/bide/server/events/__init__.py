"""Delivers the event log to listeners: what each of them selects, in order, without a gap and without a repeat."""
