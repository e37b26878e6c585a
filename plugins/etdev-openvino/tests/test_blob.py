"""Blobs: the same bytes whatever the process did before, read by the runtime as OpenVINO's own."""

import functools
import os
import subprocess
import sys

import pytest
import torch
from support.models import nets
from support.models.small import Function
from support.toys.runtime import delegates, execute

pytest.importorskip("openvino", reason="openvino is not installed")

from etdev_openvino import blob
from etdev_openvino.compiler import OpenvinoByOrigin
from etdev_openvino.plugin import OpenVinoPlugin
from executorch.backends.openvino.preprocess import OpenvinoBackend

from etdev import Lowerer

MODELS = {
    "conv_net": nets.conv_net,
    "quantised_conv_net": nets.quantised_conv_net,
    "bert": functools.partial(nets.bert, layers=1),
    "cached_llama": functools.partial(nets.cached_llama, layers=1),
    "gru": nets.gru,
}


def lower(model):
    # Compiled by ExecuTorch's own preprocess, which the tests replace.
    return Lowerer([OpenVinoPlugin(precision="bf16")], cache=False).lower(*model)


def payloads(lowered):
    return [bytes(delegate.processed_bytes) for delegate in delegates(lowered.edge)]


@pytest.mark.slice("conv_net")
@pytest.mark.parametrize("name", MODELS)
def test_bytes_are_the_same_whatever_was_compiled_before_and_mean_the_same(name, monkeypatch):
    model = MODELS[name]()
    calls = [model[1], model[1]]
    with monkeypatch.context() as patch:
        patch.setattr(OpenvinoByOrigin, "preprocess", OpenvinoBackend.preprocess)
        theirs = lower(model)
    ours, again = lower(model), lower(model)
    assert payloads(ours)
    assert payloads(ours) == payloads(again)
    assert payloads(ours) != payloads(theirs)
    for own, other in zip(execute(ours, *calls), execute(theirs, *calls), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(own, other, strict=True))


def test_openvinos_own_bytes_are_not(monkeypatch):
    monkeypatch.setattr(OpenvinoByOrigin, "preprocess", OpenvinoBackend.preprocess)
    first, second = payloads(lower(nets.mlp())), payloads(lower(nets.mlp()))
    assert first != second, "blob.py is not needed any more"


@pytest.mark.suite
def test_another_process_makes_the_same_pte(tmp_path):
    """With another hash seed, and after other work."""
    code = (
        "import sys; from etdev import Lowerer; from support.models import nets\n"
        "for net in sys.argv[2:]:\n"
        "    lowered = Lowerer(['openvino'], cache=False).lower(*getattr(nets, net)())\n"
        "lowered.save(sys.argv[1])\n"
    )
    path = os.pathsep.join(filter(None, sys.path))
    files = [tmp_path / "first.pte", tmp_path / "second.pte"]
    for seed, file, work in zip("12", files, (["mlp"], ["conv_net", "mlp"]), strict=True):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path}
        words = [sys.executable, "-c", code, str(file), *work]
        subprocess.run(words, env=environment, check=True, capture_output=True, timeout=300)
    assert files[0].read_bytes() == files[1].read_bytes()


def test_layers_are_named_by_the_nodes_they_come_from():
    (payload,) = payloads(lower((Function(lambda x: torch.relu(x) * 3), (torch.ones(2, 3),))))
    text = blob.text_of(payload)
    assert b'name="aten_relu_default/ReLU_1"' in text


@pytest.mark.parametrize("data", [b"", b"other", bytes(48), bytes(range(256)), b"<?xml" * 20])
def test_what_has_another_format_stays_as_it_is(data):
    assert blob.canonical(data, ()) == data
