"""AOTInductor without a GPU or without ExecuTorch's runtime: a fake of it, and itself."""
