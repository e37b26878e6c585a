"""CUDA plugin of etdev: AOTInductor delegates through ExecuTorch's CudaBackend."""
