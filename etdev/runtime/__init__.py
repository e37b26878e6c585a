"""A finished .pte in ExecuTorch's runtime: run, compared with PyTorch, checked, bisected."""
