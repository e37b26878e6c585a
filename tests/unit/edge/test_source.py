"""Sources: whatever a user hands in becomes methods, and stays as it was."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from support.models.small import Function
from support.toys.runtime import by_partitioner
from torch import nn
from torch.export import Dim, ExportedProgram

from etdev import Lowerer
from etdev.edge.reference import Reference
from etdev.edge.source import export, methods_of
from etdev.errors import EtdevWarning, SourceError
from etdev.quirks import QUIRKS
from etdev.quirks.table import Fixer, Table
from etdev.schema.method import Method
from etdev.upstream.trees import pytree
from etdev.verify.oracle import Oracle

SHAPES = "give a module with example inputs, an ExportedProgram, a .pt2 file, or a dict of methods"

STATE = (
    "is a dict of tensors, such as a state dict; load it into the module with load_state_dict, and "
    "give that with example inputs"
)


class Branch(nn.Module):
    """Control flow that depends on data, which can't be exported."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x


class Ends(nn.Module):
    """Ends the process that runs it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise SystemExit(3)


class Counter(nn.Module):
    """A buffer that every call writes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x + self.calls


def exported(method: Method) -> ExportedProgram:
    return export(method, Fixer(Table(QUIRKS)))


@pytest.fixture(scope="module")
def program() -> ExportedProgram:
    return torch.export.export(nn.Linear(3, 2).eval(), (torch.ones(1, 3),))


@pytest.fixture(scope="module")
def pt2(program, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("sources") / "linear.pt2"
    torch.export.save(program, path)
    return path


@pytest.mark.parametrize("inputs", [(torch.ones(1, 3),), [torch.ones(1, 3)], torch.ones(1, 3)])
def test_a_module_takes_inputs_as_a_sequence_or_a_single_tensor(inputs):
    module = nn.Linear(3, 2).eval()
    (method,) = methods_of(module, inputs).values()
    assert (method.name, method.model) == ("forward", module)
    assert isinstance(method.inputs, tuple)
    program = exported(method)
    assert torch.equal(program.module()(torch.ones(1, 3)), module(torch.ones(1, 3)))


def test_an_exported_program_is_taken_as_it_is(program):
    methods = methods_of(program)
    assert list(methods) == ["forward"]
    assert exported(methods["forward"]) is program


def test_a_program_knows_its_example_inputs(program):
    arguments, keywords = methods_of(program)["forward"].example()
    assert [a.shape for a in arguments] == [(1, 3)]
    assert keywords == {}


def test_a_dict_holds_modules_programs_and_paths(program, pt2):
    dim = Dim("batch", min=1, max=4)
    methods = methods_of(
        {
            "tuple": (nn.ReLU(), (torch.ones(2, 3),)),
            "tensor": (nn.ReLU(), torch.ones(2, 3)),
            "dynamic": (nn.ReLU(), (torch.ones(2, 3),), ({0: dim},)),
            "program": program,
            "alone": (program,),
            "path": pt2,
            "text": str(pt2),
        }
    )
    assert [method.name for method in methods.values()] == list(methods)
    programs = [exported(method) for method in methods.values()]
    assert all(isinstance(program, ExportedProgram) for program in programs)
    assert not exported(methods["tuple"]).range_constraints
    (bounds,) = exported(methods["dynamic"]).range_constraints.values()
    assert (bounds.lower, bounds.upper) == (1, 4)


def test_eager_takes_inputs_in_the_flat_order_of_a_pte():
    (method,) = methods_of(Sum(), torch.ones(2), {"y": torch.ones(1)}).values()
    reference = Reference.of(method, exported(method))
    inputs = [torch.ones(2), torch.tensor([5.0])]
    (result,) = Oracle([reference]).call(reference, inputs).outputs
    assert torch.equal(result, torch.full((2,), 8.0))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3,), f"forward: int is not a model; {SHAPES}"),
        ((nn.ReLU,), f"forward: type is not a model; {SHAPES}"),
        ((None,), f"forward: NoneType is not a model; {SHAPES}"),
        (({"a": [nn.ReLU()]},), f"a: list is not a model; {SHAPES}"),
        (({},), f"model: is an empty dict; {SHAPES}"),
        ((nn.Linear(1, 1).state_dict(),), f"model: {STATE}"),
        (({"a": (nn.Linear(1, 1).state_dict(), torch.ones(1))},), f"a: {STATE}"),
        (({"a": ()},), "model: is a tuple of 0; give (module, example inputs)"),
        (({"a": (1, 2, 3, 4, 5)},), "model: is a tuple of 5; give (module, example inputs)"),
        (("gone.pt2",), "gone.pt2: does not exist; give the path of a .pt2 file"),
        (("/",), "/: does not exist; give the path of a .pt2 file"),
    ],
)
def test_what_is_no_model_is_refused_with_what_would_be(arguments, message):
    with pytest.raises(SourceError) as caught:
        methods_of(*arguments)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "shared",
    [{"inputs": torch.ones(1)}, {"kwargs": {"x": torch.ones(1)}}, {"dynamic_shapes": ({},)}],
    ids=lambda shared: next(iter(shared)),
)
def test_a_dict_of_methods_shares_no_inputs(shared):
    with pytest.raises(SourceError) as caught:
        methods_of({"a": nn.ReLU()}, **shared)
    assert str(caught.value) == (
        'inputs: can\'t be shared by a dict of methods; write {"forward": (module, inputs)}'
    )


def test_a_module_without_inputs_cannot_be_exported():
    (method,) = methods_of(nn.ReLU()).values()
    with pytest.raises(SourceError) as caught:
        exported(method)
    assert str(caught.value) == "forward: has no example inputs; give inputs"
    with pytest.raises(SourceError) as caught:
        method.example()
    assert str(caught.value) == "forward: has no example inputs; give inputs"


@pytest.mark.parametrize(
    ("module", "inputs"),
    [(Branch(), torch.ones(2)), (nn.Linear(2, 2), torch.ones(1, 3)), (Ends(), torch.ones(2))],
)
def test_a_failed_export_names_the_method_and_keeps_the_cause(module, inputs):
    (method,) = methods_of({"decode": (module, inputs)}).values()
    with pytest.raises(SourceError) as caught:
        exported(method)
    assert caught.value.who == "decode"
    cause = caught.value.__cause__
    assert type(cause).__name__ in caught.value.what
    assert "\n" not in str(caught.value)


def export_error(function, *inputs, **dims):
    shapes = ({index: dims[name] for index, name in enumerate(dims)},) if dims else None
    method = Method("forward", Function(function), inputs, dynamic_shapes=shapes and (shapes,))
    with pytest.raises(SourceError) as caught:
        exported(method)
    return caught.value


def test_torchs_advice_on_a_dimension_is_kept():
    def halves(x):
        return x + 1 if x.shape[0] > 6 else x * 2

    fixed = export_error(lambda x: x @ torch.ones(4, 4), torch.ones(3, 4), rows=Dim("rows"),
                         width=Dim("width"))  # fmt: skip
    first = halves.__code__.co_firstlineno
    assert fixed.cure == "torch suggests width = 4"
    assert fixed.what == (
        "torch.export failed: UserError: Constraints violated (width)! You marked width as dynamic "
        f"but your code specialized it to be a constant (4) at test_source.py:{first + 3}"
    )
    bounded = export_error(halves, torch.ones(4, 3), batch=Dim("batch", max=16))
    assert bounded.cure == "torch suggests batch = Dim('batch', max=6)"
    assert "(batch)! Not all values of batch = " in bounded.what
    assert bounded.what.endswith(f" <= 6 at test_source.py:{first + 1}")
    even = export_error(
        lambda x: x.view(x.shape[0] // 2, 2, -1), torch.ones(4, 3), batch=Dim("batch", max=16)
    )
    assert even.cure == "torch suggests _batch = Dim('_batch', min=1, max=8), batch = 2*_batch"
    assert "\n" not in str(even)


def test_an_error_of_an_export_names_the_users_line_below_forward():
    def chooses(x):
        if x.sum().item() > 0:
            return x + 1
        return x

    error = export_error(lambda x: chooses(x), torch.ones(2))
    line = chooses.__code__.co_firstlineno + 1
    assert error.what.endswith(f" at test_source.py:{line}")
    missing = export_error(lambda x: {}["key"] + x, torch.ones(2))
    assert missing.what.startswith(
        "forward() fails in eager PyTorch with these inputs: KeyError: 'key' at "
    )


def test_example_inputs_that_do_not_fit_are_told_from_a_model_that_torch_cannot_trace():
    wide = export_error(lambda x: x @ torch.ones(3, 2), torch.ones(2, 4))
    assert wide.what.startswith(
        "forward() fails in eager PyTorch with these inputs: RuntimeError: mat1 and mat2 shapes "
        "cannot be multiplied (2x4 and 3x2) at test_source.py:"
    )
    # torch.export takes both, and ExecuTorch's verifier then refuses a matrix product.
    for dtype in (torch.float64, torch.int64):
        other = export_error(lambda x: x @ torch.ones(3, 2), torch.ones(2, 3, dtype=dtype))
        assert "RuntimeError: expected m1 and m2 to have the same dtype" in other.what
    array = export_error(lambda x: x * 2, np.ones(2))
    assert str(array) == (
        "forward: an example input is a NumPy array; give tensors, such as torch.from_numpy(array)"
    )
    one = export_error(lambda x: x * 2, torch.ones(1, 3), batch=Dim("batch", max=8))
    assert one.cure.startswith("give an example that is larger than 1 there")


def test_torch_prints_no_graph_of_a_model_that_it_cannot_trace(capfd):
    branch = export_error(lambda x: x if x.sum() > 0 else -x, torch.ones(2))
    assert branch.cure == "a branch on a tensor's values is written with torch.where or torch.cond"
    size = export_error(lambda x: x[: int(x.sum().item())], torch.ones(2))
    assert size.cure.startswith("take the integer from an integer tensor, as in x.long().item()")
    # What a model prints is shown.
    export_error(lambda x: print("hello") or x if x.sum() > 0 else x, torch.ones(2))
    shown = capfd.readouterr()
    assert "def forward" not in shown.err + shown.out


@pytest.mark.parametrize("data", [b"", b"some text\n", b"PK\x03\x04cut"])
def test_a_file_that_is_no_pt2_is_named(tmp_path, data):
    path = tmp_path / "net.pt2"
    path.write_bytes(data)
    assert _load_error(path).startswith(f"{path}: can't be loaded as a .pt2 file (")


@pytest.mark.parametrize("fraction", [0.1, 0.5, 0.9])
def test_a_truncated_pt2_is_named(tmp_path, pt2, fraction):
    data = pt2.read_bytes()
    path = tmp_path / "cut.pt2"
    path.write_bytes(data[: int(len(data) * fraction)])
    assert _load_error(path).endswith(UNREADABLE)


@pytest.mark.parametrize("moody", [nn.Dropout(), nn.BatchNorm1d(3)])
def test_dropout_and_batch_norm_in_training_mode_are_warned_about(moody):
    (method,) = methods_of(nn.Sequential(nn.Linear(3, 3), moody.train()), torch.ones(2, 3)).values()
    with pytest.warns(EtdevWarning) as caught:
        exported(method)
    assert [str(warning.message) for warning in caught if warning.category is EtdevWarning] == [
        "forward: dropout or batch norm is in training mode; call .eval() on the module first"
    ]


@pytest.mark.parametrize(
    "module",
    [nn.Linear(3, 3).train(), nn.Sequential(nn.Linear(3, 3), nn.Dropout()).eval()],
    ids=["linear in training", "dropout in eval"],
)
def test_a_mode_that_changes_nothing_is_not_warned_about(module):
    (method,) = methods_of(module, torch.ones(2, 3)).values()
    with warnings.catch_warnings():
        warnings.simplefilter("error", EtdevWarning)
        exported(method)


@pytest.mark.filterwarnings("ignore::etdev.errors.EtdevWarning")
@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout()).train(),
        nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3).train()).eval(),
        Counter(),
    ],
    ids=["training", "eval", "mutated buffer"],
)
def test_export_leaves_the_module_as_it_was(module):
    def state():
        flags = [inner.training for inner in module.modules()]
        grads = [(p.requires_grad, p.grad) for p in module.parameters()]
        return flags, grads, {name: t.clone() for name, t in module.state_dict().items()}

    flags, grads, tensors = state()
    exported(methods_of(module, torch.ones(2, 3))["forward"])
    flags_after, grads_after, tensors_after = state()
    assert (flags_after, grads_after) == (flags, grads)
    assert list(tensors_after) == list(tensors)
    assert all(torch.equal(tensors_after[name], tensors[name]) for name in tensors)


def _load_error(path: Path) -> str:
    with pytest.raises(SourceError) as caught:
        methods_of(path)
    return str(caught.value)


class Sum(nn.Module):
    """A sum that shows which input is which."""

    def forward(self, x, y):
        return x * 3 + y


def test_a_tensor_given_as_two_inputs_is_exported_as_two():
    x = torch.ones(2)
    program = exported(Method("forward", Sum(), (x,), {"y": x})).module()
    assert torch.equal(program(x, y=x + 1), Sum()(x, x + 1))


class Offset(nn.Module):
    """A sum with a weight."""

    def __init__(self):
        super().__init__()
        self.y = nn.Parameter(torch.ones(2))

    def forward(self, x):
        return x * 3 + self.y


def exported_twice(model):
    """A program, exported with one tensor in two places."""
    x = torch.ones(2)
    return torch.export.export(model, (x, x) if isinstance(model, Sum) else (model.y,))


MERGED = (
    "forward: was exported with one tensor in two places and ignores {!r}; "
    "export it with inputs that are tensors of their own"
)


@pytest.mark.parametrize(("model", "ignored"), [(Sum(), "x"), (Offset(), "p_y")])
def test_a_program_exported_with_one_tensor_in_two_places_is_refused(model, ignored):
    method = Method("forward", exported_twice(model))
    with pytest.raises(SourceError) as caught:
        exported(method)
    assert str(caught.value) == MERGED.format(ignored)


def test_a_partitioner_refuses_a_program_that_ignores_an_input():
    with pytest.raises(SourceError) as caught:
        by_partitioner(exported_twice(Sum()))
    assert str(caught.value) == MERGED.format("x")


def test_weights_that_are_one_tensor_are_no_inputs_that_are_ignored():
    model = Offset()
    model.z = model.y
    exported(Method("forward", torch.export.export(model, (torch.ones(2),))))


def test_a_program_takes_no_dynamic_shapes(program):
    (method,) = methods_of(program, dynamic_shapes=({0: Dim("batch")},)).values()
    with pytest.raises(SourceError) as caught:
        exported(method)
    assert str(caught.value) == (
        "forward: is exported already, so dynamic_shapes has no effect; "
        "give them to torch.export.export"
    )


UNREADABLE = "; write it with torch.export.save, or load it in a function that imports its types"


@dataclass
class Pair:
    """A result of a type that a library registers when it is imported."""

    first: torch.Tensor
    second: torch.Tensor


def test_a_pt2_with_types_that_nobody_imported_names_them(tmp_path):
    torch.export.register_dataclass(Pair, serialized_type_name="a_library.Pair")
    program = torch.export.export(Function(lambda x: Pair(x + 1, x)), (torch.ones(2),))
    torch.export.save(program, tmp_path / "net.pt2")
    pytree._deregister_pytree_node(Pair)
    error = _load_error(tmp_path / "net.pt2")
    assert "a_library.Pair in pytree is not registered" in error
    assert error.endswith(UNREADABLE)


def test_a_constant_of_a_transform_is_refused_by_name():
    """torch.export keeps torch.func's own tensors, whose values are gone."""
    slope = torch.func.grad(lambda x: (x**2).sum())
    with pytest.raises(SourceError) as caught:
        Lowerer([]).plan(Function(slope), (torch.ones(4),))
    assert str(caught.value) == (
        "forward: lifted_tensor_0 has no memory that a program could keep (NotImplementedError: "
        "Cannot access storage of TensorWrapper); make it a dense tensor, and leave transforms "
        "such as torch.func.grad out"
    )
