"""The models of the zoo in each order of plugins, and the verdict that is expected of each."""

from __future__ import annotations

from support.zoo import animals

from survey.judge import ORDERS, THEIRS, Subject

ANIMALS = animals(
    *("layers", "weights", "sizes", "values", "state", "aliases", "flow", "places", "numbers"),
    *("quantised", "blocks", "dtypes", "heads", "streams", "architectures"),
)
OURS = [order for order in ORDERS if order != THEIRS]
# Refused by name in every order, as ExecuTorch refuses them or computes them wrongly.
_REFUSED = (
    *("weights.orthogonal_weight", "sizes.sorted_length", "values.ties"),
    *("flow.loop", "flow.map_over_two", "flow.map_with_two_results", "aliases.input_written"),
    *("aliases.input_written_at_once", "aliases.row_of_an_input_written"),
    *("aliases.input_written_with_another", "architectures.fnet"),
)
EXPECTED = {(model, order): "refused" for model in _REFUSED for order in OURS}
# XNNPACK takes the smallest numbers for 0, whatever its op. Where a sum is rounded, PyTorch's own
# float32 is off, too.
for _order in ("cpu", "cpu, openvino", "partitioner"):
    EXPECTED["values.smallest_numbers", _order] = "wrong"
    EXPECTED["values.rounded_behind_a_sum", _order] = "unstable"
# NaN in places that PyTorch samples as the border, where OpenVINO's plugin ignores NaN by default.
for _order in ("openvino, cpu", "cpu, openvino"):
    EXPECTED["heads.samples_beside_an_image", _order] = "wrong"
# Images of one channel, whose two memory formats have the same strides: ExecuTorch's own path can't
# lower the first one, and fails on the second one at run time.
for _model in ("places.layer_of_one_channel", "places.shuffled_to_one_channel"):
    EXPECTED[_model, "partitioner"] = "refused"
# ExecuTorch would misplace a view of what control flow returns, or overwrite it.
EXPECTED["flow.views_of_what_flows_return", "partitioner"] = "refused"
# Its random weights amplify rounding, in PyTorch, too.
EXPECTED |= dict.fromkeys((("architectures.mobilenet_v1", order) for order in OURS), "unstable")


def subject(model: str) -> Subject:
    """Build a model of the zoo."""
    animal = ANIMALS[model]
    return Subject(animal.build(), animal.calls, animal.dynamic, animal.tolerance)
