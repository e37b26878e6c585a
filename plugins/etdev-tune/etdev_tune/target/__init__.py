"""What runs on a target: it needs Python and ExecuTorch there, and no etdev."""
