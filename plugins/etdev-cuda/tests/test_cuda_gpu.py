"""On a real GPU: real models through AOTInductor, checked, and run if there is a runtime."""

from importlib.util import find_spec

import pytest
import torch
from etdev_cuda import machine
from support.models import minilm, nets

from etdev import CPU, Device, Lowerer
from etdev.pte.ptd import find
from etdev.pte.read import read
from etdev.runtime.check import check
from etdev.runtime.run import run
from etdev.runtime.runners import PYTHON, named
from etdev.upstream.trees import flat
from etdev.verify.output_error import compare

MISSING = machine.probe().unfit
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(MISSING is not None, reason=str(MISSING))]
SINCE_1_5 = find_spec("executorch.backends.cuda.cuda_weight_collector") is not None
CUDA = Device("cuda", 0)
MODELS = {
    "minilm": minilm.model,
    "resnet18": nets.resnet18,
    "cached llama": nets.cached_llama,
}


@pytest.fixture(scope="module", params=MODELS)
def lowered(request, tmp_path_factory):
    module, inputs = MODELS[request.param]()
    path = tmp_path_factory.mktemp("gpu") / "model.pte"
    result = Lowerer(["cuda", "cpu"]).lower(module, inputs)
    result.save(path)
    return result, path, module, inputs


def test_what_is_written_is_what_was_planned(lowered):
    result, path, _, _ = lowered
    plugins = Lowerer(["cuda", "cpu"]).plugins
    problems = check(path, [CPU, CUDA], plan=result.plan, plugins=plugins)
    assert [text for text in problems if "runtime has no" not in text] == []


def test_the_library_is_elf_and_the_weights_are_outside_since_executorch_1_5(lowered):
    _, path, _, _ = lowered
    facts = read(path)
    assert any(key.endswith("_so_blob") for key in facts.named)
    assert b"\x7fELF" in path.read_bytes()
    assert (find(facts, path) is not None) == SINCE_1_5


def test_it_computes_what_eager_computes(lowered, record_property):
    """In the runtime that the plugin names, in a process of its own."""
    _, path, module, inputs = lowered
    with torch.no_grad():
        expected = flat(module(*inputs))
    runner = machine.runner()
    done = run(path, inputs, repeat=10, runner=named(runner) if runner else PYTHON)
    errors = [o.max_error / max(1.0, o.max_value) for o in compare(done.outputs, expected)]
    record_property("max_error", max(errors))
    assert max(errors) <= 1e-2


@pytest.mark.parametrize("plugins", [["cuda", "cpu"], ["cpu"], []], ids=", ".join)
def test_a_model_on_the_gpu_has_its_other_weights_on_the_host(plugins, tmp_path):
    module, inputs = nets.mlp()
    there = tuple(value.cuda() for value in inputs)
    lowered = Lowerer(plugins).lower(module.cuda(), there)
    lowered.save(tmp_path / "net.pte")
    if "cuda" not in plugins:
        assert lowered.verify().unverified == ()
