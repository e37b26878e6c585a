"""ExecuTorch's ops that copy between the host and a device."""

# Registers torch.ops.et_copy.
import executorch.exir.passes._device_copy_ops_registry  # noqa: F401
import torch

H2D = torch.ops.et_copy._h2d_copy.default
D2H = torch.ops.et_copy._d2h_copy.default
