"""The .pte file: emitted, written, read back and compared with the plan."""
