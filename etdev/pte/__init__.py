"""The .pte: emitted, written, read back and held against the plan."""
