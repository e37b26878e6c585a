"""Modules that run on a target, which needs Python and ExecuTorch, and no etdev."""
