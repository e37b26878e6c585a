"""What tests of CudaBackend need of ExecuTorch."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

# ExecuTorch 1.4's CudaBackend stores a blob per delegate, and fails on control flow.
NEEDS_1_5 = pytest.mark.skipif(
    find_spec("executorch.backends.cuda.cuda_weight_collector") is None,
    reason="the CudaBackend of ExecuTorch 1.4 can't",
)
