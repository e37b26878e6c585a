"""Fakes of TensorRT: its library, its builder of engines, and programs with engines."""
