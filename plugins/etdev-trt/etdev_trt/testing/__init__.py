"""Fakes of TensorRT: its closed library, its builder of engines, and programs with engines."""
