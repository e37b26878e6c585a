"""AOTInductor without a GPU: a fake of it, and itself compiling for this CPU."""
