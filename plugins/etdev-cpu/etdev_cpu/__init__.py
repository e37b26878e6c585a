"""CPU plugin of etdev: XNNPACK delegates through ExecuTorch's XnnpackBackend."""
