"""Strided transposed convolutions: XNNPACK's own beside plain ones, which etdev-cpu may write.

PYTHONPATH=tests OMP_NUM_THREADS=1 python -m benchmarks.deconvolution
"""

from __future__ import annotations

import torch
from benchmarks import record
from benchmarks.latency import ETDEV, EXECUTORCH, loaded_in_turn, lowered
from benchmarks.models import Sample
from executorch.extension.pybindings import portable_lib
from torch import nn

# Inputs, outputs, kernel, stride, padding, and the image's height and width.
CASES = (
    *((16, 1, 2, 2, 0, 64), (16, 8, 2, 2, 0, 64), (32, 16, 2, 2, 0, 64), (256, 128, 2, 2, 0, 16)),
    *((32, 3, 4, 2, 1, 48), (64, 17, 4, 2, 1, 32), (16, 32, 4, 2, 1, 24), (64, 64, 4, 2, 1, 32)),
    *((4, 64, 2, 2, 0, 32), (4, 64, 4, 2, 1, 32), (8, 1, 8, 4, 2, 32), (64, 64, 4, 4, 0, 16)),
    *((16, 1, 3, 2, 1, 64), (32, 32, 3, 2, 1, 32), (64, 3, 5, 2, 2, 32), (128, 64, 5, 2, 2, 16)),
)


def main() -> None:
    """Print the time of each case."""
    record.quiet()
    portable_lib._unsafe_reset_threadpool(1)
    for inputs, outputs, kernel, stride, padding, size in CASES:
        layer = nn.ConvTranspose2d(inputs, outputs, kernel, stride, padding).eval()
        sample = Sample(layer, (torch.randn(1, inputs, size, size),))
        with torch.no_grad():
            programs, _ = lowered(sample)
            times = loaded_in_turn(programs, lambda s=sample: s.module(*s.inputs), sample.inputs, 5)
        ratio = times[ETDEV] / times[EXECUTORCH]
        print(inputs, outputs, kernel, stride, f"{ratio:.2f} of XNNPACK's own")


if __name__ == "__main__":
    main()
