"""Finished .pte files in ExecuTorch's runtime: run, checked, verified, profiled and bisected."""
