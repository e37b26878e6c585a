"""CPU plugin of etdev: XNNPACK delegates, portable kernels for the rest."""
