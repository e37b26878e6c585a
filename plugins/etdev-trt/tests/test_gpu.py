"""Real engines on a real GPU: built, lowered, run and compared with eager."""

import importlib.util

import pytest
import torch
from etdev_trt import machine
from etdev_trt.plugin import TrtPlugin
from support.models import nets

from etdev import Lowerer

RUNTIME = "torch_tensorrt_executorch_runtime"
# Options, and the error that their arithmetic allows.
SETTINGS = {
    "as the model is": ({"disable_tf32": True}, 1e-4),
    "fp16": ({"precision": "fp16"}, 2e-2),
}


def why_not():
    if not torch.cuda.is_available():
        return "this machine has no NVIDIA GPU"
    if reason := machine.unfit():
        return reason
    if importlib.util.find_spec(RUNTIME) is None:
        return "torch-tensorrt-executorch-runtime is not installed"
    return None


@pytest.fixture(autouse=True)
def gpu():
    # Asked when a test runs, because tests may be collected on a machine without a GPU.
    if reason := why_not():
        pytest.skip(reason)


def run(path, inputs):
    import torch_tensorrt

    return torch_tensorrt.load(str(path), format="executorch").forward(*inputs)


def assert_agrees(path, module, inputs, tolerance):
    with torch.no_grad():
        expected = module(*inputs)
    (output,) = run(path, inputs)
    torch.testing.assert_close(output.cpu(), expected, atol=tolerance, rtol=tolerance)


@pytest.mark.gpu
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("model", ["mlp", "conv_net"])
def test_an_engine_built_here_runs(settings, model, tmp_path):
    module, inputs = getattr(nets, model)()
    options, tolerance = SETTINGS[settings]
    lowered = Lowerer([TrtPlugin(compile=True, min_block_size=1, **options), "cpu"]).lower(
        module, inputs
    )
    assert "TrtPlugin" in {part.plugin for part in lowered.plan.partitions}
    assert_agrees(lowered.save(tmp_path / "built.pte"), module, inputs, tolerance)


@pytest.mark.gpu
@pytest.mark.parametrize("settings", SETTINGS)
def test_an_engine_that_torch_tensorrt_built_runs(settings, tmp_path):
    import torch_tensorrt

    module, inputs = nets.conv_net()
    options, tolerance = SETTINGS[settings]
    if "precision" in options:
        options = {"enable_autocast": True, "autocast_low_precision_type": torch.float16}
    there = [tensor.cuda() for tensor in inputs]
    with torch.no_grad():
        program = torch.export.export(module.cuda(), tuple(there))
    compiled = torch_tensorrt.dynamo.compile(program, arg_inputs=there, min_block_size=1, **options)
    engines = torch_tensorrt.dynamo.export(compiled, arg_inputs=there, use_legacy_exporter=True)
    lowered = Lowerer(["trt", "cpu"]).lower(engines)
    assert [str(part.device) for part in lowered.plan.partitions] == ["cuda:0"]
    assert_agrees(lowered.save(tmp_path / "engine.pte"), module.cpu(), inputs, tolerance)
