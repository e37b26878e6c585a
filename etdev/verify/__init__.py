"""Verification of a .pte against the model in eager PyTorch."""
