"""What XNNPACK's matcher says of a node, in words that a user can act on."""

import ast
from pathlib import Path

import executorch.backends.xnnpack
import pytest
import torch
from etdev_cpu.reasons import in_words
from support.models.small import Function

from etdev import Lowerer

XNNPACK = Path(executorch.backends.xnnpack.__file__).parent


def texts(file):
    """Return the reasons that a file of XNNPACK's matcher gives, each value in it as `VALUE`."""
    for call in ast.walk(ast.parse(file.read_text())):
        given = isinstance(call, ast.Call) and getattr(call.func, "id", "") == "why"
        for text in [*call.args[1:], *(k.value for k in call.keywords)] if given else ():
            pieces = text.values if isinstance(text, ast.JoinedStr) else [text]
            yield "".join(
                piece.value if isinstance(piece, ast.Constant) else "VALUE" for piece in pieces
            )


def test_every_reason_of_executorch_has_words():
    files = [*XNNPACK.glob("partition/**/*.py"), *XNNPACK.glob("_passes/*.py")]
    told = {text: in_words(text) for file in files for text in texts(file)}
    del told["invalid dtype"]  # Told with the dtypes, by of_values.
    assert len(told) > 40
    assert [text for text, words in told.items() if not words] == []


@pytest.mark.parametrize(
    ("compute", "shape", "told"),
    [
        (lambda x: x.softmax(0), (2, 3, 4), "not over dimension 0 of 3: transpose before it"),
        (lambda x: x.half().mean((2, 3)), (1, 2, 4, 4), "XNNPACK has mean with keepdim=True only"),
        (lambda x: x.mean(1, keepdim=True), (2, 3, 4), "of 4 dimensions, not of 3"),
        (lambda x: x**3, (2, 3), "XNNPACK has the square as its only power, not 3"),
        (lambda x: x.unsqueeze(0) * 2, (2, 3), "XNNPACK adds a dimension only as the last one"),
        (lambda x: x.to(torch.float16) + 1, (2, 3), "XNNPACK doesn't cast float32 to float16"),
        (lambda x: x[x > 0] * 2, (2, 3), "XNNPACK has no empty tensors, and data decide whether"),
    ],
)
def test_a_refusal_says_what_to_do(compute, shape, told):
    plan = Lowerer(["cpu"]).plan(Function(compute), (torch.randn(shape),))
    reasons = [verdict.text for entry in plan["forward"].ledger for verdict in entry.verdicts]
    assert any(told in reason for reason in reasons), reasons
