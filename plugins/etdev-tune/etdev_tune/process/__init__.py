"""The worker, a process that loads ExecuTorch once and forks for each run."""
