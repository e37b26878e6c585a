"""The models of the corpus, and the plugins that each is lowered with."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from attrs import field, frozen

from support.models import decoders, matrix, nets

# A model, and its example inputs unless the model is already exported.
Source = tuple[Any, Any]
Build = Callable[[], Source]


@frozen
class Order:
    """Plugins in claim order, and the way in which a model reaches them.

    Args:
        name: Its name in keys.
        plugins: Names of plugins; without any, portable kernels compute everything.
        registry: The registry file, by its stem.
        path: `lower` saves a `.pte` with `Lowerer`, `partition` gives `etdev.partitioner()` to
            ExecuTorch's own loop, and `plan` compiles nothing.
    """

    name: str
    plugins: tuple[str, ...]
    registry: str = field(default="plain", kw_only=True)
    path: str = field(default="lower", kw_only=True)

    @property
    def registry_file(self) -> Path:
        """The path of the registry file."""
        return Path(__file__).with_name(f"{self.registry}.toml")


@frozen(eq=False)
class Case:
    """One model in one order.

    Args:
        model: Its name, which starts with the name of its group.
        build: Makes the model, afresh in each process.
        order: The plugins that lower it.
    """

    model: str
    build: Build
    order: Order

    @property
    def key(self) -> str:
        """The name of the case in a record."""
        return f"{self.model} | {self.order.name}"


PORTABLE = Order("portable", ())
CPU = Order("cpu", ("cpu",))
OPENVINO = Order("openvino, cpu", ("openvino", "cpu"))
CPU_FIRST = Order("cpu, openvino", ("cpu", "openvino"))
EXACT = Order("openvino exact, cpu", ("openvino", "cpu"), registry="exact")
RULES = Order("cpu by rules", ("cpu",), registry="rules")
PARTITIONER = Order("partitioner, cpu", ("cpu",), path="partition")
EXACT_PARTITIONER = Order(
    "partitioner, openvino exact, cpu", ("openvino", "cpu"), registry="exact", path="partition"
)
CUDA = Order("plan, cuda, cpu", ("cuda", "cpu"), path="plan")

# The files of the zoo, and the orders of their models.
ZOO = {
    "state": (PORTABLE, CPU, PARTITIONER),
    "aliases": (PORTABLE, CPU, EXACT, PARTITIONER),
    "flow": (PORTABLE, CPU, EXACT, PARTITIONER),
    "places": (CPU, PARTITIONER),
    "numbers": (CPU, PARTITIONER),
    "quantised": (CPU, PARTITIONER),
    "blocks": (CPU, EXACT),
    "dtypes": (CPU,),
    "heads": (CPU,),
    "streams": (CPU,),
}
# The models of benchmarks/latency that the matrix doesn't have.
LATENCY: dict[str, tuple[Callable[[], Source], tuple[Order, ...]]] = {
    "attention": (decoders.attention, (CPU,)),
    "bert-2": (nets.bert, (CPU, EXACT)),
    "llama-2": (nets.llama, (CPU,)),
    "cached llama-2": (nets.cached_llama, (CPU, EXACT)),
    "mobilenet": (nets.mobilenet, (CPU,)),
}
LARGE = {"minilm_l6": (CPU, EXACT), "resnet_18": (CPU,)}
SMALL = (PORTABLE, CPU, OPENVINO, CPU_FIRST, EXACT, PARTITIONER, CUDA)
# More orders of some small models.
MORE = {
    "mlp": (RULES, EXACT_PARTITIONER),
    "conv_net": (RULES,),
    "transformer_block": (RULES,),
    "tied_embedding": (EXACT_PARTITIONER,),
    "kv_cache": (EXACT_PARTITIONER,),
    "dynamic_batch": (RULES,),
    "two_methods": (RULES, EXACT_PARTITIONER),
}
# By what computes them: special functions, order, linear algebra, reductions, positions, samples
# of images, random numbers, volumes, losses, complex numbers, elements one by one, layers.
OPERATORS = (
    *("erfinv", "lgamma", "digamma", "igamma", "special.i1e", "special.airy_ai"),
    *("sort", "topk", "kthvalue", "median", "mode", "cummax", "unique", "nonzero"),
    *("masked_select", "histc", "searchsorted", "quantile"),
    *("linalg.inv", "linalg.solve", "linalg.cholesky", "linalg.qr", "linalg.svd", "linalg.eigh"),
    *("matrix_exp", "linalg.vector_norm", "cdist", "addbmm"),
    *("scatter_reduce.prod", "index_reduce.amax", "var_mean", "logcumsumexp", "nanmean"),
    *("index_put", "index_fill", "masked_scatter", "repeat_interleave", "roll", "put"),
    *("as_strided_scatter", "unfold"),
    *("nn.functional.grid_sample", "nn.functional.interpolate.bicubic"),
    *("bernoulli", "multinomial", "rand_like", "nn.functional.rrelu"),
    *("nn.functional.conv_transpose3d", "nn.functional.max_pool3d", "nn.functional.max_unpool2d"),
    *("max_pool2d_with_indices_backward", "nn.functional.embedding_bag"),
    *("nn.functional.multilabel_margin_loss", "nn.functional.nll_loss", "nn.functional.pdist"),
    *("fft.rfft", "fft.fft", "stft", "view_as_complex"),
    *("copysign", "frexp", "xlogy", "nan_to_num", "to"),
    *("nn.functional.instance_norm", "nn.functional.scaled_dot_product_attention"),
    *("gcd", "bitwise_left_shift", "bincount"),
)
INTEGER_OPERATORS = (
    *("sum", "prod", "cumsum", "remainder", "floor_divide", "div.trunc_rounding", "pow"),
    *("amax", "sort", "mm", "isin", "nn.functional.avg_pool2d"),
)
EMPTY_OPERATORS = (
    *("mm", "addmm", "cat", "cdist", "roll", "sort", "gather", "unique", "prod", "linalg.det"),
    *("nn.functional.rms_norm", "nn.functional.batch_norm"),
)
DYNAMIC_OPERATORS = (
    *("mm", "cat", "sum", "amax", "roll", "sort", "topk", "logsumexp", "cumsum", "index_select"),
    *("gather", "softmax", "std", "nonzero", "nn.functional.layer_norm", "nn.functional.conv2d"),
)

QUICK = (
    *("matrix.mlp | portable", "matrix.mlp | cpu", "matrix.mlp | openvino exact, cpu"),
    *("matrix.mlp | cpu, openvino", "matrix.mlp | plan, cuda, cpu"),
    *("matrix.conv_net | openvino, cpu", "matrix.transformer_block | cpu"),
    *("matrix.tied_embedding | openvino exact, cpu", "matrix.kv_cache | cpu"),
    *("matrix.kv_cache | partitioner, cpu", "matrix.cond | cpu", "matrix.while_loop | cpu"),
    *("matrix.map_rows | portable", "matrix.dynamic_batch | cpu by rules"),
    *("matrix.two_methods | partitioner, openvino exact, cpu", "matrix.int8_conv_net | cpu"),
    *("zoo.state.counter | cpu", "zoo.state.put_rows | portable"),
    *("zoo.state.shifted_through_two | partitioner, cpu", "zoo.state.copied_from_a_row | cpu"),
    *("zoo.aliases.input_written | cpu", "zoo.aliases.swapped_buffers | cpu"),
    *("zoo.aliases.views_of_a_written_buffer | openvino exact, cpu",),
    *("zoo.flow.conditions_in_a_row | portable", "zoo.flow.map_over_two | cpu"),
    *("zoo.numbers.nothing_sorted | cpu", "zoo.numbers.missing_labels | partitioner, cpu"),
    *("zoo.dtypes.divided_negatives | cpu", "zoo.streams.kalman_filter | cpu"),
    "zoo.quantised.two_dynamic_4_pergroup | cpu",
    *("opdb.sort | portable", "opdb.linalg.inv | portable", "opdb.fft.rfft | portable"),
    *("opdb.scatter_reduce.prod | portable", "opdb.nn.functional.grid_sample | portable"),
    *("opdb.special.airy_ai | portable", "opdb.bernoulli | portable"),
    *("opdb.remainder of integers | portable", "opdb.mm of nothing | portable"),
    "opdb.roll of dynamic sizes | portable",
)


def cases(groups: Iterable[str] | None = None) -> list[Case]:
    """Return the cases of some groups of models, of all if none are named; the longest first."""
    makers = {"latency": _latency, "matrix": _matrix, "zoo": _zoo, "opdb": _operators}
    chosen = makers if groups is None else groups
    return [case for group, make in makers.items() if group in chosen for case in make()]


def quick_cases() -> list[Case]:
    """Return about forty cases, of all groups and orders."""
    known = {case.key: case for case in cases()}
    return [known[key] for key in QUICK]


def _each(model: str, build: Build, orders: Iterable[Order]) -> Iterator[Case]:
    for order in orders:
        yield Case(model, build, order)


def _latency() -> Iterator[Case]:
    for name, (build, orders) in LATENCY.items():
        yield from _each(f"latency.{name}", build, orders)


def _matrix() -> Iterator[Case]:
    for name, orders in LARGE.items():
        yield from _each(f"matrix.{name}", partial(_programs, matrix.LARGE[name]), orders)
    for name, make in matrix.SMALL.items():
        orders = (*SMALL, *MORE.get(name, ()))
        yield from _each(f"matrix.{name}", partial(_programs, make), orders)


def _programs(make: Callable[[], matrix.Case]) -> Source:
    return dict(make().programs), None


def _zoo() -> Iterator[Case]:
    for place, orders in ZOO.items():
        # Some models have layers with random weights, which are made when their file is imported.
        torch.manual_seed(0)
        animals = importlib.import_module(f"support.zoo.{place}").ZOO.animals
        for name, animal in animals.items():
            yield from _each(f"zoo.{place}.{name}", partial(_animal, animal), orders)


def _animal(animal: Any) -> Source:
    return animal.build(), animal.calls[0]


def _operators() -> Iterator[Case]:
    # Importing torch's database of operators takes seconds.
    from support.models.opdb import exported

    variants: dict[str, tuple[tuple[str, ...], dict[str, Any], tuple[Order, ...]]] = {
        "": (OPERATORS, {}, (PORTABLE,)),
        " of integers": (INTEGER_OPERATORS, {"dtype": torch.int64}, (PORTABLE, PARTITIONER)),
        " of nothing": (EMPTY_OPERATORS, {"empty": True}, (PORTABLE, PARTITIONER)),
        " of dynamic sizes": (DYNAMIC_OPERATORS, {"dynamic": True}, (PORTABLE, CPU, PARTITIONER)),
    }

    def build(name: str, options: dict[str, Any]) -> Source:
        program = exported(name, **options)
        if program is None:
            raise LookupError(f"no sample of {name} can be exported")
        return program, None

    for suffix, (names, options, orders) in variants.items():
        for name in names:
            make = partial(build, name, options)
            yield from _each(f"opdb.{name}{suffix}", make, orders)
