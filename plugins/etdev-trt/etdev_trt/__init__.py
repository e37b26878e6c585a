"""TensorRT plugin of etdev: TensorRT delegates through torch-tensorrt's TensorRTBackend."""
