"""OpenVINO plugin of etdev: OpenVINO delegates through ExecuTorch's OpenvinoBackend."""
