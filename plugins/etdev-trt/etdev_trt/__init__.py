"""TensorRT plugin of etdev: engines that torch-tensorrt built, each on its own device."""
