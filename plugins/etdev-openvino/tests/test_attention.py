"""Attention: OpenVINO gets it whole where it computes what PyTorch does, else in pieces."""

import pytest
import torch
from support.models.small import Function
from support.toys.runtime import assert_agrees, execute
from torch.nn.functional import scaled_dot_product_attention

pytest.importorskip("openvino", reason="openvino is not installed")

from etdev_openvino.plugin import OpenVinoPlugin

from etdev import Lowerer

OP = "aten.scaled_dot_product_attention.default"
FLOAT32 = OpenVinoPlugin()


def drawn(*sizes):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(sum(sizes)))


QUERY, KEY, LONG = drawn(2, 4, 6, 16), drawn(2, 4, 6, 16) + 0.1, drawn(2, 4, 9, 16)
LOWER = torch.ones(6, 6, dtype=torch.bool).tril()
NO_FIRST = LOWER.clone().fill_diagonal_(False)
HIDES = torch.where(NO_FIRST, 0.0, -torch.inf)


def expanded(rows):
    """A mask that etdev leaves expanded, as it is too large to be a constant."""
    return rows[:, None].expand(192, 192)


def attend(*tensors, **options):
    return scaled_dot_product_attention(*tensors, **options).transpose(1, 2) * 2.0


def taken(*tensors):
    """Attentions that OpenVINO can have whole."""
    query, key, long = tensors
    many = query.reshape(1, 1, 192, 4)
    return (
        attend(query, key, key),
        attend(query, key, key, is_causal=True),
        attend(query, long, long, is_causal=True, scale=0.7),
        attend(long, key, key, is_causal=True),
        attend(query, long, long[..., :8], scale=-1.5),
        attend(query, key, key, attn_mask=LOWER),
        attend(query, key, key, attn_mask=torch.where(LOWER, 0.5, -torch.inf), scale=0.0),
        attend(query, key, key, attn_mask=NO_FIRST.float()[:, :1]),
        attend(many, many, many, attn_mask=expanded(torch.arange(192) >= 0)),
        attend(query[:, :1, :1] * 100, long[:, :1], long[:, :1]),
        attend(query, key[:1], key[:1]),
        attend(query[0], key[0], key[0]),
        attend(query[None], key[None], key[None], attn_mask=LOWER),
        scaled_dot_product_attention(query, key, key),
    )


def left(*tensors):
    """Attentions that it would fail on or get wrong."""
    query, key, long, mask, bias = tensors
    many = query.reshape(1, 1, 192, 4)
    return (
        attend(query, key[:, :2], key[:, :2], enable_gqa=True),
        scaled_dot_product_attention(query[0, 0], key[0, 0], key[0, 0]) * 2.0,
        attend(query, key, key, attn_mask=mask),
        attend(query, key, key, attn_mask=bias),
        attend(query, key, key, attn_mask=NO_FIRST),
        attend(query, key, key, attn_mask=HIDES),
        attend(many, many, many, attn_mask=expanded(torch.arange(192) > 0)),
        attend(query, long, long, attn_mask=bias.sum(-1, keepdim=True)),
    )


def lowered(module, inputs, *plugins):
    result = Lowerer(list(plugins), cache=False).lower(module, inputs)
    return result, [entry.op for entry in result.plan["forward"].ledger].count(OP)


@pytest.mark.suite
def test_attention_is_taken_whole():
    module, inputs = Function(taken), (QUERY, KEY, LONG)
    result, whole = lowered(module, inputs, FLOAT32)
    assert whole == len(taken(*inputs))
    assert len(result.plan["forward"].partitions) == 1
    others = tuple(tensor.flip(0) * 3 for tensor in inputs)
    assert_agrees(result, module, inputs, others, inputs)


@pytest.mark.suite
def test_what_openvino_gets_wrong_is_decomposed():
    module, inputs = Function(left), (QUERY, KEY, LONG, NO_FIRST, HIDES)
    result, whole = lowered(module, inputs, FLOAT32)
    assert whole == 0
    assert {entry.owner for entry in result.plan["forward"].ledger} == {"OpenVinoPlugin"}
    shown = (*inputs[:3], LOWER, torch.zeros(6, 6))
    assert_agrees(result, module, inputs, shown, inputs)
    hidden = execute(result, inputs)[0][2]
    assert hidden[:, 0].eq(0).all()


@pytest.mark.suite
def test_rounded_attention_agrees_roughly():
    module, inputs = Function(taken), (QUERY, KEY, LONG)
    result, whole = lowered(module, inputs, OpenVinoPlugin())
    assert whole == len(taken(*inputs))
    assert_agrees(result, module, inputs, tolerance=5e-2)


@pytest.mark.slice("exact")
@pytest.mark.parametrize(
    "plugins",
    [
        pytest.param(["cpu", FLOAT32], id="another plugin took a piece"),
        pytest.param([OpenVinoPlugin(precision="f32"), "cpu"], id="no products"),
        pytest.param([OpenVinoPlugin(precision="f32_all", nan="exact")], id="exact"),
    ],
)
def test_attention_is_decomposed_for_whoever_takes_pieces(plugins):
    module, inputs = Function(attend), (QUERY, KEY, KEY)
    result, whole = lowered(module, inputs, *plugins)
    assert whole == 0
    assert_agrees(result, module, inputs)
