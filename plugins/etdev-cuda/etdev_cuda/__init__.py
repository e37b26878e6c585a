"""CUDA plugin of etdev: AOTInductor delegates for whatever earlier plugins left."""
