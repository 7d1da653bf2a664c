"""How fast files are normalized, beside the bare parsers, and in how much memory."""
