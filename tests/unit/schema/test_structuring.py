"""Structuring: plain data becomes values, or problems with the path of each faulty key."""

from collections.abc import Mapping

import cattrs
import pytest
from attrs import frozen

from etdev.schema.structuring import problems, strict_converter


@frozen
class Layer:
    width: int = 1
    scale: float = 1.0


@frozen
class Net:
    name: str = ""
    layers: tuple[Layer, ...] = ()
    sizes: Mapping[str, list[int]] = {}


def net(data):
    return strict_converter().structure(data, Net)


def refused(data):
    with pytest.raises(cattrs.BaseValidationError) as caught:
        net(data)
    return [(problem.who, problem.what, problem.cure) for problem in problems(caught.value)]


def test_lists_and_tables_become_the_types_of_their_fields():
    made = net({"layers": [{"width": 2}, {"scale": 3}], "sizes": {"a": (1, 2)}})
    assert made == Net("", (Layer(2), Layer(scale=3)), {"a": [1, 2]})


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({"name": 3}, ("name", "is 3", "it must be text")),
        ({"layers": "ab"}, ("layers", "is 'ab'", "it must be a list")),
        ({"layers": {"width": 1}}, ("layers", "is {'width': 1}", "it must be a list")),
        ({"layers": [{"width": True}]},
         ("layers[0].width", "is True", "it must be a whole number")),
        ({"layers": [{}, {"scale": "1"}]}, ("layers[1].scale", "is '1'", "it must be a number")),
        ({"layers": [{"widht": 1}]},
         ("layers[0].widht", "is an unknown key", "did you mean width?")),
        ({"sizes": 3}, ("sizes", "is 3", "it must be a table")),
        ({"sizes": {"a": [1, "2"]}}, ("sizes.a[1]", "is '2'", "it must be a whole number")),
    ],
)  # fmt: skip
def test_a_problem_has_the_path_of_its_key(data, problem):
    assert refused(data) == [problem]


def test_all_problems_are_named():
    keys = [key for key, _, _ in refused({"name": 1, "layers": [{"width": "1"}, 2], "size": 3})]
    assert keys == ["name", "layers[0].width", "layers[1]", "size"]
