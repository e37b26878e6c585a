"""What is sampled between places, and float64 beside it: also at NaN and infinities."""

import math

import pytest
import torch
from support.models.small import Function
from support.toys.runtime import assert_agrees

from etdev import Lowerer, LoweringError

functional = torch.nn.functional
ODD = (math.nan, math.inf, -math.inf)


def spoilt(x, value):
    x = x.clone()
    x.view(-1)[::5] = value
    return x


@pytest.mark.slice("float32")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_images_are_upsampled_as_in_eager(dtype):
    def upsampled(line, image, volume):
        resize = functional.interpolate
        lines = resize(line, scale_factor=1.7, mode="linear"), resize(line, 4, mode="linear")
        images = (
            resize(image, scale_factor=2.0, mode="bilinear"),
            resize(image, (8, 3), mode="bilinear"),
            resize(image, (9, 4), mode="bilinear", align_corners=True),
            resize(image, (2, 1), mode="bilinear", align_corners=True),
        )
        volumes = (
            resize(volume, scale_factor=(2, 1, 0.6), mode="trilinear"),
            resize(volume, (4, 2, 5), mode="trilinear", align_corners=True),
        )
        # Portable kernels take images of float32, as XNNPACK's delegate does.
        return *lines, *(images if dtype == torch.float64 else ()), *volumes

    shapes = (2, 3, 7), (2, 3, 6, 5), (1, 2, 3, 4, 5)
    plain = tuple(torch.randn(shape, dtype=dtype) for shape in shapes)
    calls = [plain, *(tuple(spoilt(x, value) for x in plain) for value in ODD)]
    module = Function(upsampled)
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    assert_agrees(Lowerer([]).lower(module, plain), module, *calls, tolerance=tolerance)


@pytest.mark.suite
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_volumes_are_sampled_as_in_eager(mode):
    def sampled(x, places):
        modes = [(p, a) for p in ("zeros", "border", "reflection") for a in (False, True)]
        return [
            functional.grid_sample(x, places, mode=mode, padding_mode=padding, align_corners=align)
            for padding, align in modes
        ]

    x, places = torch.randn(2, 2, 3, 4, 5), torch.rand(2, 2, 3, 4, 3) * 4 - 2
    calls = [(x, places), *((x, spoilt(places, value)) for value in ODD)]
    assert_agrees(Lowerer([]).lower(Function(sampled), calls[0]), sampled, *calls)


@pytest.mark.suite
def test_images_are_made_smaller_without_aliases_as_in_eager():
    def sampled(x):
        sizes = ((3, 4), False), ((8, 5), True), ((1, 1), False), ((13, 2), False)
        options = {"mode": "bicubic", "antialias": True}
        return [
            functional.interpolate(x, scale_factor=0.4, **options),
            *(functional.interpolate(x, size, align_corners=a, **options) for size, a in sizes),
        ]

    x = torch.randn(1, 2, 9, 5)
    calls = [(x,), (spoilt(x, math.nan),)]
    assert_agrees(Lowerer([]).lower(Function(sampled), calls[0]), sampled, *calls)


@pytest.mark.suite
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_batch_of_images_is_made_smaller_without_aliases(dtype):
    def sampled(x):
        sizes = ((3, 4), False), ((8, 5), True), ((1, 1), False)
        options = {"mode": "bilinear", "antialias": True}
        return [functional.interpolate(x, size, align_corners=a, **options) for size, a in sizes]

    calls = [(torch.randn(batch, 2, 9, 5, dtype=dtype),) for batch in (2, 4, 1)]
    shapes = (({0: torch.export.Dim("batch", max=4)},),)
    lowered = Lowerer([]).lower(Function(sampled), calls[0], dynamic_shapes=shapes)
    assert_agrees(lowered, sampled, *calls)


@pytest.mark.parametrize(
    ("dtype", "options"),
    [
        (torch.uint8, {}),
        (torch.uint8, {"align_corners": True}),
    ],
)
def test_images_without_a_formula_are_refused(dtype, options):
    def smaller(x):
        return functional.interpolate(x, (2, 3), mode="bilinear", **options)

    with pytest.raises(LoweringError, match="fails or is wrong for what"):
        Lowerer([]).lower(Function(smaller), (torch.ones(1, 2, 6, 6, dtype=dtype),))
