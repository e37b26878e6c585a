"""ExecuTorch's C++ runtime: a runner for `.pte` files, and C++ projects to start from."""
