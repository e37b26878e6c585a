"""Finished .pte files in ExecuTorch's runtime: run, checked and profiled."""
