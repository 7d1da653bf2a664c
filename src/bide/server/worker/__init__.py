"""Runs handlers in warm child processes: the children, the handler's context, and the supervisor."""
