"""The zoo: each model, in each order of plugins, is as eager PyTorch call after call or refused.

Its .pte runs in a process of its own; outputs, state and written inputs are compared.
"""

import pytest
from support.zoo import animals

from etdev import Lowerer
from etdev.errors import LoweringError

pytest.importorskip("openvino", reason="openvino is not installed")

from etdev_openvino.plugin import OpenVinoPlugin

ORDERS = {
    "none": [],
    "cpu": ["cpu"],
    "openvino, cpu": [OpenVinoPlugin(nan="exact"), "cpu"],
}
ANIMALS = animals(
    *("state", "aliases", "flow", "places", "numbers", "quantised"),
    *("blocks", "dtypes", "heads", "streams"),
)
# What is refused by name, with words of the refusal.
REFUSED = {
    "flow.loop": "ExecuTorch has neither while_loop nor maps",
    "flow.map_over_two": "ExecuTorch has neither while_loop nor maps of several tensors",
    "flow.map_with_two_results": "ExecuTorch has neither while_loop nor maps of several tensors",
    "aliases.input_written": "writes to its input",
    "aliases.input_written_at_once": "writes to its input",
    "aliases.row_of_an_input_written": "writes to its input",
    "aliases.input_written_with_another": "writes to its input",
}
# Cells that are wrong or fail today, and why.
KNOWN = {
    ("dtypes.roots", "cpu"): "XNNPACK's square root of -inf or inf is another, see its option nan",
    ("aliases.value_returned_thrice", "cpu"): "XNNPACK's sine of the largest float32 is NaN",
}
QUICK = [
    *("state.counter", "state.shifted_through_two", "state.put_rows", "state.copied_from_a_row"),
    *("aliases.views_of_a_written_buffer", "aliases.input_written", "aliases.swapped_buffers"),
    *("flow.loop", "quantised.two_dynamic_4_pergroup"),
    *("flow.map_over_two", "flow.two_carries_that_change_places"),
]


def cells():
    for name in ANIMALS:
        for order in ORDERS:
            quick = name in QUICK and order == ("openvino, cpu" if "quant" in name else "cpu")
            marks = [] if quick else [pytest.mark.matrix]
            if reason := KNOWN.get((name, order)):
                marks.append(pytest.mark.xfail(reason=reason, strict=True))
            yield pytest.param(name, order, marks=marks)


@pytest.mark.parametrize(("name", "order"), cells())
def test_an_animal_is_as_in_pytorch_or_refused_by_name(name, order):
    animal, lowerer = ANIMALS[name], Lowerer(ORDERS[order])
    if name in REFUSED:
        with pytest.raises(LoweringError, match=REFUSED[name]):
            lowerer.lower(animal.build(), animal.calls[0]).to_executorch()
        return
    lowered = lowerer.lower(animal.build(), animal.calls[0])
    verified = lowered.verify(animal.calls, steps=4, edges=animal.edges)
    assert verified.calls >= 4
    assert not verified.unverified
