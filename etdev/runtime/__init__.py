"""A finished .pte in ExecuTorch's runtime: run, checked, verified against PyTorch, bisected."""
