"""The bytes of an OpenvinoBackend delegate: a model as OpenVINO's `export_model` writes it."""

from __future__ import annotations

from etdev import CPU, Device
from etdev.errors import ArtifactError

BACKEND_ID = "OpenvinoBackend"
# The classes in compiler.py, which would import torch.
COMPILER = "OpenvinoByOrigin"
COMPILER_IN_FLOAT32 = "OpenvinoInFloat32"


def device_of(payload: bytes, arguments: int | None = None) -> Device | None:
    """Return the device whose memory a delegate reads and writes: always the CPU.

    Raises:
        ArtifactError: There is nothing in the payload. Its format is each OpenVINO device's own, so
            no more than that can be told.
    """
    if not any(payload):
        what = "is damaged: its payload is empty or all zeros"
        raise ArtifactError(BACKEND_ID, what, "lower the model again")
    return CPU
