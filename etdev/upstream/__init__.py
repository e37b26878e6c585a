"""The undocumented names of torch and ExecuTorch that etdev needs, and their versions."""
