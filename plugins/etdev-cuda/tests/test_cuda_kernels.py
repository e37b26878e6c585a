"""What the plugin says of AOTInductor's kernels, held against Inductor's own lowering for a GPU."""

import itertools

import pytest
import torch
from etdev_cuda.kernels import Kernels, supported
from torch.nn import functional
from torch.utils import _pytree as pytree

pytest.importorskip("triton", reason="CudaBackend imports triton, which is for Linux")

from executorch.backends.cuda.cuda_backend import CudaBackend
from support.toys import gpu_lowering

IMAGE, LINE, SQUARE = torch.randn(1, 4, 9, 9), torch.randn(1, 4, 9), torch.randn(4, 4)
BODY = torch.randn(1, 4, 3, 3, 3)
INTEGERS = torch.arange(16).reshape(4, 4)
FILTERS, ROW = torch.randn(8, 4, 3, 3), torch.tensor([0, 2])
# A call for each rule, on both sides of it.
CALLS = {
    "linear": (functional.linear, (SQUARE, SQUARE)),
    "product of integers": (torch.mm, (INTEGERS, INTEGERS)),
    "product in float64": (torch.mm, (SQUARE.double(), SQUARE.double())),
    "empty product": (torch.mm, (torch.ones(0, 4), SQUARE)),
    "attention": (functional.scaled_dot_product_attention, (IMAGE, IMAGE, IMAGE)),
    "conv1d": (functional.conv1d, (LINE, FILTERS[:, :, 0])),
    "conv1d same": (lambda x, w: functional.conv1d(x, w, padding="same"), (LINE, FILTERS[:, :, 0])),
    "conv2d": (functional.conv2d, (IMAGE, FILTERS)),
    "conv2d dilated": (lambda x, w: functional.conv2d(x, w, dilation=2), (IMAGE, FILTERS)),
    "conv3d": (functional.conv3d, (BODY, SQUARE[:, :, None, None, None].expand(4, 4, 2, 2, 2))),
    "conv3d of points": (functional.conv3d, (BODY, SQUARE[:, :, None, None, None])),
    "conv2d transposed": (functional.conv_transpose2d, (IMAGE, FILTERS.transpose(0, 1))),
    "sort": (torch.sort, (SQUARE,)),
    "topk": (lambda x: torch.topk(x, 2), (SQUARE,)),
    "median": (torch.median, (SQUARE,)),
    "cumsum": (lambda x: x.cumsum(0), (SQUARE,)),
    "inverse": (torch.linalg.inv, (SQUARE,)),
    "polygamma": (lambda x: torch.polygamma(1, x), (SQUARE,)),
    "erfinv": (torch.erfinv, (SQUARE,)),
    "bilinear": (lambda x: functional.interpolate(x, (4, 4), mode="bilinear"), (IMAGE,)),
    "trilinear": (lambda x: functional.interpolate(x, (4, 4, 4), mode="trilinear"), (BODY,)),
    "bilinear, antialiased": (
        lambda x: functional.interpolate(x, (4, 4), mode="bilinear", antialias=True),
        (IMAGE,),
    ),
    "bicubic, antialiased": (
        lambda x: functional.interpolate(x, (4, 4), mode="bicubic", antialias=True),
        (IMAGE,),
    ),
    "pool, 5 x 5": (lambda x: functional.avg_pool2d(x, 5, 1), (IMAGE,)),
    "pool, 6 x 6": (lambda x: functional.avg_pool2d(x, 6, 1), (IMAGE,)),
    "adaptive pool": (lambda x: functional.adaptive_avg_pool2d(x, 2), (IMAGE,)),
    "index": (lambda x, i: x[i], (SQUARE, ROW)),
    "index_put": (lambda x, i: x.index_put((i,), x[i]), (SQUARE, ROW)),
    "index_put by mask": (lambda x, y: x.index_put((x > 0,), y), (SQUARE, SQUARE[0, 0])),
    "index_put added": (lambda x, i: x.index_put((i,), x[i], True), (INTEGERS, ROW)),
    "scatter": (lambda x, i: x.scatter(0, i, x), (SQUARE, INTEGERS % 4)),
    "scatter integers": (lambda x, i: x.scatter(0, i, x), (INTEGERS, INTEGERS % 4)),
    "scatter product": (lambda x, i: x.scatter_reduce(0, i, x, "prod"), (SQUARE, INTEGERS % 4)),
    "power of integers": (lambda x: x**3, (INTEGERS,)),
    "power by integers": (lambda x: x**x, (INTEGERS,)),
    "complex": (torch.complex, (SQUARE, SQUARE)),
}


def options(autotuned=True):
    chosen = CudaBackend.get_aoti_compile_options([])
    return chosen | {"max_autotune": autotuned}


def missing(module, autotuned=True):
    """Ops whose kernels the plugin misses."""
    kernels = Kernels(autotuned)
    calls = [node for node in module.graph.nodes if node.op == "call_function"]
    return {op for op in map(kernels.missing, calls) if op}


def lacks(module, inputs, autotuned=True):
    """Whether Inductor calls a kernel that CudaBackend lacks, or has none to choose."""
    try:
        called = gpu_lowering.kernels_called(module, inputs, options(autotuned))
    except Exception as error:
        if "NoValidChoices" in str(error):
            return True
        raise
    return not called <= supported()


def test_the_kernels_that_cuda_backend_has_are_read_from_its_source():
    assert supported() == set(CudaBackend.get_supported_fallback_kernels())


@pytest.mark.slice(
    "attention",
    "conv1d",
    "product of integers",
    "sort",
    "index_put by mask",
    "pool, 5 x 5",
    "pool, 6 x 6",
    "power by integers",
)
@pytest.mark.parametrize("name", CALLS)
def test_a_kernel_is_missed_exactly_if_inductor_calls_it(name):
    module, inputs = gpu_lowering.traced(*CALLS[name])
    assert bool(missing(module)) == lacks(module, inputs)


@pytest.mark.parametrize("name", ["linear", "conv2d", "attention", "erfinv"])
def test_without_autotuning_products_and_convolutions_are_kernels(name):
    module, inputs = gpu_lowering.traced(*CALLS[name])
    assert bool(missing(module, False)) == lacks(module, inputs, False) == (name != "erfinv")


# Not lowered here, since a GPU that isn't there can't run what they run while they are traced.
NEEDS_A_GPU = (
    "PyTorch is not linked",
    "no NVIDIA driver",
    "'CUDA' backend",
    "DispatchKey.CUDA",
    "not compiled with CUDA",
    "convert all Tensors",
    "on the same device",
    "in scatter",
)


@pytest.mark.suite
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.bool], ids=str)
def test_no_op_of_op_db_is_claimed_for_a_kernel_that_is_missing(dtype):
    from torch.testing._internal.common_methods_invocations import op_db

    wrong = []
    for op in op_db:
        if dtype not in op.supported_dtypes("cpu"):
            continue
        for sample in list(itertools.islice(op.sample_inputs("cpu", dtype), 2)):
            try:
                module, inputs = gpu_lowering.traced(*_call(op, sample))
            except Exception:
                continue
            # The lowering takes its mode from them.
            if not inputs:
                continue
            try:
                if lacks(module, inputs) and not missing(module):
                    wrong.append(op.name)
            except Exception as error:
                if not any(text in str(error) for text in NEEDS_A_GPU):
                    wrong.append(f"{op.name}: {error}")
    assert wrong == []


def _call(op, sample):
    leaves, spec = pytree.tree_flatten(((sample.input, *sample.args), dict(sample.kwargs)))
    places = [at for at, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def call(*tensors):
        values = dict(zip(places, tensors, strict=True))
        args, kwargs = pytree.tree_unflatten(
            [values.get(at, leaf) for at, leaf in enumerate(leaves)], spec
        )
        return op.op(*args, **kwargs)

    return call, tuple(leaves[at].detach() for at in places)
