"""OpenVINO plugin of etdev: delegates through ExecuTorch's OpenvinoBackend."""
