"""ExecuTorch's own tests of attention and caches of its Llama, with the modules lowered by etdev.

They lie in its wheel, in examples/models/llama/tests. These don't apply: extension/llm/modules/test
needs torchtune; extension/llm/cache and the TurboQuant cache call ops without a kernel in the
runtime (`kvcache::update_and_attend`); extension/llm/custom_ops and extension/llm/export/test test
custom ops, parsers and passes in eager PyTorch and lower no model. Of the caches of
test_ring_attention.py only the plain ring is here: the whole one is refused for `and_` of its check
of positions, and those that `llama::update_cache` writes, for an op with effects.
"""

from __future__ import annotations

import functools
import importlib.util
from typing import Any

import pytest
import torch
from executorch.runtime import Runtime
from torch import nn

from etdev import Lowerer
from etdev.upstream.trees import pytree

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("executorch.examples.models.llama.tests") is None,
        reason="this wheel of ExecuTorch has no tests of its Llama",
    ),
]
ORDERS = [["cpu"], ["openvino", "cpu"]]


class Lowered:
    """A module whose calls run in ExecuTorch's runtime, a program for each shape of inputs."""

    def __init__(self, module: nn.Module, order: list[str]) -> None:
        self.module, self.order, self.calls = module, order, 0
        self._known: dict[Any, Any] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, spec = pytree.tree_flatten((args, kwargs))
        tensors = [leaf.contiguous() for leaf in leaves if isinstance(leaf, torch.Tensor)]
        key = (str(spec), tuple((t.shape, t.dtype) for t in tensors))
        if key not in self._known:
            self._known[key] = self._lowered(args, kwargs)
        method, out_spec, *_ = self._known[key]
        self.calls += 1
        outputs = [value.clone() for value in method.execute(tensors)]
        return pytree.tree_unflatten(outputs, out_spec)

    def _lowered(self, args: Any, kwargs: Any) -> Any:
        with torch.no_grad():
            program = torch.export.export(self.module, args, kwargs)
        lowered = Lowerer(self.order).lower(program)
        assert any(partition.plugin != "portable" for partition in lowered.plan.partitions)
        data = lowered.to_executorch().buffer
        loaded = Runtime.get().load_program(data)
        # The runtime reads the bytes as long as it lives.
        return loaded.load_method("forward"), program.call_spec.out_spec, loaded, data


@functools.cache
def static_tests() -> Any:
    from executorch.examples.models.llama.tests import test_static_attention

    return test_static_attention.StaticAttentionTest


@pytest.mark.suite
@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize(
    "name",
    ["within_transformer", "sliding_window_chunked_prefill", "lookahead_decode"],
)
def test_static_attention_in_transformers(name, order):
    made = []

    class Test(static_tests()):
        def _get_test_transformers(self, *args, **kwargs):
            whole, static, config = super()._get_test_transformers(*args, **kwargs)
            made.append(Lowered(static, order))
            return whole, made[-1], config

    case = Test(f"test_{name}")
    case.setUp()
    getattr(case, f"test_{name}")()
    assert made
    assert all(each.calls for each in made)


@pytest.mark.slice("['cpu']")
@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_static_attention_over_chunks(order, monkeypatch):
    from executorch.examples.models.llama.static_attention import StaticAttention

    make, made = StaticAttention.from_attention_mha, []

    class Attention(Lowered):
        def adopt_hf_rope(self):
            self.module.adopt_hf_rope()

    def lowered(*args, **kwargs):
        made.append(Attention(make(*args, **kwargs), order))
        # Their test calls `eval` on it.
        made[-1].eval = lambda: made[-1]
        made[-1].module.eval()
        return made[-1]

    monkeypatch.setattr(StaticAttention, "from_attention_mha", lowered)
    case = static_tests()("test_with_cache")
    case.setUp()
    case.test_with_cache()
    assert [each.calls for each in made] == [6]


class Attention(nn.Module):
    """One layer of attention, with a cache as its state."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x, cos, sin, position):
        return self.inner.forward(x, cos, sin, input_pos=position)[0]


def cached_attention():
    """Return attention of ExecuTorch's test of ring buffers, and inputs of ten steps."""
    from executorch.examples.models.llama.tests import test_ring_attention as theirs

    torch.manual_seed(0)
    case = theirs.TestRingAttention()
    case.setUp()
    case.sliding_window = 4
    inner = case._create_ring_attention(case._create_baseline_attention(10))
    calls = []
    for place in range(10):
        position = torch.tensor([place])
        x = torch.randn(1, 1, case.dim)
        calls.append((x, *case.rope.get_freqs(position, 1), position))
    return Attention(inner).eval(), calls


@pytest.mark.suite
@pytest.mark.parametrize(
    "order", [ORDERS[0], pytest.param(ORDERS[1], marks=pytest.mark.suite)], ids=str
)
def test_a_ring_cache_over_steps(order):
    module, calls = cached_attention()
    lowered = Lowerer(order).lower(module, calls[0])
    assert lowered.verify(calls, steps=len(calls)).calls == len(calls)
