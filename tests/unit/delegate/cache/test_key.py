"""The key: whatever the compiled bytes depend on changes it, and nothing else does."""

import copy
import functools
import importlib
import json
import sys
import time
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from attrs import define, evolve
from executorch.backends.xnnpack.xnnpack_preprocess import XnnpackBackend
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from support.models.small import Function
from support.toys import Takes
from support.toys.accelerator import Accelerator
from support.toys.keys import keys, keys_of
from torch import nn
from torch._higher_order_ops.triton_kernel_wrap import triton_kernel_wrapper_functional
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import Dim
from torch.export.graph_signature import OutputKind

from etdev import Bypass, Claim, Device, Group, Lowerer, hookimpl
from etdev.delegate.cache import origins
from etdev.delegate.cache.canonical import Uncacheable
from etdev.delegate.cache.digests import Digests
from etdev.errors import PluginError


class Net(nn.Module):
    """One XNNPACK partition with a weight, a scalar and an activation."""

    def __init__(self, seed: int = 0, factor: float = 2.0, slope: float = 0.1) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.fc = nn.Linear(8, 4)
        self.factor, self.slope = factor, slope

    def forward(self, x):
        return nn.functional.leaky_relu(self.fc(x), self.slope)


aten = torch.ops.aten
X = torch.ones(3, 8)
LOWERER = Lowerer(["cpu"])
DECIDED = LOWERER.decide(Net(), (X,))
BASE = keys_of(LOWERER, DECIDED)


def changed_keys(change: Any) -> list[str]:
    """The keys of Net with a change of its split program, which has the specs of the method's."""
    programs = {name: copy.deepcopy(program) for name, program in DECIDED.programs.items()}
    return keys_of(LOWERER, evolve(DECIDED, programs=programs), change)


def test_the_same_model_has_the_same_key_again():
    assert keys(Net(), (X,)) == BASE
    assert keys(Net(), (torch.zeros(3, 8),)) == BASE  # example values are not part of a program


def last_bit() -> Net:
    net = Net()
    with torch.no_grad():
        net.fc.weight.view(torch.int32)[-1, -1] ^= 1
    return net


def with_zero(zero: float) -> Net:
    net = Net()
    with torch.no_grad():
        net.fc.bias[0] = zero
    return net


@pytest.mark.parametrize(
    "changed",
    [
        (Net(seed=1), X),
        (last_bit(), X),
        (Net(slope=0.2), X),
        (Net(slope=float("inf")), X),
        (Net(), torch.ones(4, 8)),
        (Net(), torch.ones(1, 3, 8)),
    ],
    ids=["weights", "a weight's last bit", "a scalar", "an infinite scalar", "a size", "a rank"],
)
def test_a_change_of_the_model_changes_the_key(changed):
    model, x = changed
    assert keys(model, (x,)) != BASE


def test_the_call_that_an_op_was_written_in_counts_and_its_name_does_not():
    """Backends such as Qualcomm's and Samsung's look for all nodes of one call."""

    def from_call(*names, called=nn.functional.linear):
        def change(program):
            nodes = [node for node in program.graph.nodes if node.op == "call_function"]
            for node, name in zip(nodes, names, strict=True):
                node.meta["source_fn_stack"] = [(name, called)]

        return changed_keys(change)

    one = from_call("linear", "linear")
    assert one == from_call("linear_3", "linear_3")
    others = [
        BASE,
        from_call("linear", "linear_1"),
        from_call("linear", "linear", called=nn.Linear),
    ]
    assert one not in others


def test_the_sign_of_a_zero_counts():
    assert keys(with_zero(-0.0), (X,)) != keys(with_zero(0.0), (X,))


def test_scalars_of_different_types_are_different():
    whole, real = (Function(lambda x, one=one: aten.clamp(x, 0, one)) for one in (1, 1.0))
    assert keys(whole, (X,)) != keys(real, (X,))


def bound(high: int) -> list[str]:
    return keys(Net(), (X,), dynamic_shapes=({0: Dim("n", min=2, max=high)},))


def test_the_range_of_a_dynamic_size_counts_and_its_name_does_not():
    assert bound(9) != bound(10)
    assert bound(9) != BASE
    other = keys(Net(), (X,), dynamic_shapes=({0: Dim("rows", min=2, max=9)},))
    assert other == bound(9)


IMAGE = torch.randn(2, 3, 4, 5)


@pytest.mark.parametrize(
    ("one", "other"), [(IMAGE, IMAGE.to(memory_format=torch.channels_last)), (X, X.half())]
)
def test_strides_and_dtypes_count(one, other):
    plugins = [Takes("t", ("relu.default",))]
    assert keys(nn.ReLU(), (one,), plugins) != keys(nn.ReLU(), (other,), plugins)


def renamed(program) -> None:
    for number, node in enumerate(list(program.graph.nodes)):
        if node.op == "call_function":
            node._rename(f"other_{number}")


def lines_moved(program) -> None:
    for node in program.graph.nodes:
        node.meta["stack_trace"] = "elsewhere"


@pytest.mark.parametrize("change", [renamed, lines_moved])
def test_names_of_nodes_and_places_in_the_source_do_not_count(change):
    assert changed_keys(change) == BASE


def handles(program) -> None:
    for node in program.graph.nodes:
        node.meta["debug_handle"] = 77


def annotated(program) -> None:
    next(iter(program.graph.nodes)).meta["vendor_layout"] = ("NC", 4)


def constant_renamed(program) -> None:
    # Backends name their data after it.
    spec = program.graph_signature.input_specs[0]
    program.state_dict["other"] = program.state_dict[spec.target]
    spec.target = "other"


def another_argument(program) -> None:
    node = next(node for node in program.graph.nodes if "leaky_relu" in str(node.target))
    node.args = (node.args[0], 0.1 + 1e-17)
    node.args = (node.args[0], 0.30000000000000004)


def gradient(program) -> None:
    spec = program.graph_signature.input_specs[0]
    program.state_dict[spec.target] = program.state_dict[spec.target].detach()


def gradient_of_a_value(program) -> None:
    node = next(iter(program.graph.nodes))
    node.meta["val"] = node.meta["val"].detach()


def results_exchanged(program) -> None:
    output = program.graph.output_node()
    output.args = ((*output.args[0], *output.args[0]),)


def written(program) -> None:
    program.graph_signature.output_specs[0].kind = OutputKind.BUFFER_MUTATION
    program.graph_signature.output_specs[0].target = "state"


def forgotten(program) -> None:
    program.graph_signature.input_specs[0].persistent = False


def overload(program) -> None:
    node = next(node for node in program.graph.nodes if "leaky_relu" in str(node.target))
    node.target = aten.leaky_relu.out


@pytest.mark.parametrize(
    "change",
    [
        *(handles, annotated, constant_renamed, another_argument, gradient, gradient_of_a_value),
        *(results_exchanged, written, forgotten, overload),
    ],
)
def test_what_a_backend_reads_of_a_program_counts(change):
    assert changed_keys(change) != BASE


@define(eq=False)
class Specified:
    """Claims every relu for XNNPACK, with settings of all kinds."""

    name: str = "specified"
    spec: bytes = b"1"
    told: Any = None
    variable: str = ""
    note: int = 0

    @hookimpl
    def claim_nodes(self, program):
        import executorch.backends.xnnpack.xnnpack_preprocess  # noqa: F401

        nodes = [n for n in program.graph.nodes if "relu" in str(n.target)]
        groups = [Group([node]) for node in nodes]
        return Claim("XnnpackBackend", groups, compile_specs={"level": self.spec})

    @hookimpl
    def annotate(self, partition):
        return {partition.nodes[0]: {"note": self.note}}

    @hookimpl
    def cache_key(self):
        return self.told


BASE_SPECIFIED = keys(nn.ReLU(), (X,), [Specified()])


@pytest.mark.parametrize("change", [{"spec": b"2"}, {"told": {"tool": "3.1"}}, {"note": 1}])
def test_specs_annotations_and_what_the_plugin_tells_count(change):
    assert keys(nn.ReLU(), (X,), [Specified()]) == BASE_SPECIFIED
    assert keys(nn.ReLU(), (X,), [Specified(**change)]) != BASE_SPECIFIED


def test_a_plugin_can_opt_out():
    plugins = [Specified(told=Bypass("tuned anew each time"))]
    with pytest.raises(Uncacheable, match=r"^tuned anew each time$"):
        keys(nn.ReLU(), (X,), plugins)


@pytest.mark.parametrize("told", [3, ["a"], {"a": 1}, {1: "a"}])
def test_a_wrong_answer_names_the_plugin(told):
    with pytest.raises(PluginError, match=r"^specified: cache_key returned"):
        keys(nn.ReLU(), (X,), [Specified(told=told)])


def test_versions_count(monkeypatch):
    known = origins.versions(["executorch", "torch", "etdev"])
    monkeypatch.setattr("etdev.delegate.cache.key.versions", lambda _: {**known, "torch": "9"})
    assert keys_of(LOWERER, DECIDED) != BASE


def test_code_of_an_editable_distribution_counts_by_its_files(tmp_path, monkeypatch):
    def origin_of(text: str, editable: bool, older: bool = True) -> Any:
        folder = tmp_path / text
        (folder / "vendorpkg").mkdir(parents=True)
        (folder / "vendorpkg/__init__.py").write_text(f"def f():\n    return {text!r}\n")
        info = folder / "vendorpkg-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vendorpkg\nVersion: 1.0\n")
        url = {"url": "file:///x", "dir_info": {"editable": editable}}
        (info / "direct_url.json").write_text(json.dumps(url))
        with monkeypatch.context() as patch:
            patch.syspath_prepend(folder)
            patch.delitem(sys.modules, "vendorpkg", raising=False)
            # As if it had been there before this process.
            patch.setattr(origins, "_BEGUN", time.time() + 60 if older else time.time() - 60)
            known = origins.origin(importlib.import_module("vendorpkg").f)
            patch.delitem(sys.modules, "vendorpkg")
        return known

    one, other = origin_of("one", True), origin_of("other", True)
    assert one[0].startswith("vendorpkg 1.0 ")
    assert one != other
    assert origin_of("shadow", False) is None
    # What was imported may be another version of the file.
    with pytest.raises(Uncacheable, match=r"vendorpkg was changed since this process began"):
        origin_of("edited", True, older=False)


def test_the_versions_of_a_vendor_count_and_those_of_development_or_another_python_do_not():
    known = origins.versions(["etdev-openvino"])
    assert {"etdev", "executorch", "torch", "etdev-openvino", "openvino"} <= known.keys()
    assert "ruff" not in known
    assert ("tomli" in known) == (sys.version_info < (3, 11))


@define(eq=False)
class Versioned(Accelerator):
    """The fake accelerator's plugin, which tells the version of its compiler."""

    @hookimpl
    def cache_key(self):
        return {"fake": "1"}


def test_the_device_counts():
    texts = [keys(nn.ReLU(), (X,), [Versioned(device=Device("cuda", n))]) for n in (0, 0, 1)]
    assert texts[0] == texts[1] != texts[2]


class Unversioned(BackendDetails):
    """A backend that no distribution has; it can't be run."""

    @staticmethod
    def preprocess(edge_program, compile_specs):
        return PreprocessResult(processed_bytes=b"fake")


def test_a_backend_of_no_distribution_has_no_key_unless_the_plugin_tells_its_version():
    with pytest.raises(Uncacheable, match="Unversioned is not of an installed version"):
        keys(nn.ReLU(), (X,), [Accelerator(backend="Unversioned")])
    assert keys(nn.ReLU(), (X,), [Versioned(backend="Unversioned")])


def test_the_order_of_plugins_and_of_entry_points_does_not_count():
    class Nothing:
        name = "nothing"

        @hookimpl
        def claim_nodes(self):
            return None

    assert keys(Net(), (X,), [Nothing(), "cpu"]) == keys(Net(), (X,), ["cpu", Nothing()]) == BASE


@define(eq=False)
class InContext(Specified):
    """Compiles in a context that sets an environment variable."""

    name: str = "context"
    option: Any = None

    @hookimpl
    def compile_context(self):
        patch = pytest.MonkeyPatch.context()
        return _setting(patch, self.variable)


@contextmanager
def _setting(patch: Any, value: str):
    with patch as active:
        active.setenv("VENDOR_TUNING", value)
        yield


def test_what_the_compile_context_settles_counts(monkeypatch):
    # A test's file is not of an installed package; take it for one.
    monkeypatch.setattr("etdev.delegate.cache.key.origin", lambda _: ("tests 1",))
    texts = [keys(nn.ReLU(), (X,), [InContext(variable=v, told={})]) for v in "ab"]
    assert texts[0] != texts[1]


def test_a_compile_context_whose_code_is_unknown_bypasses_the_cache():
    with pytest.raises(Uncacheable, match="not of an installed package"):
        keys(nn.ReLU(), (X,), [InContext(told={})])


def test_a_compile_context_without_cache_key_bypasses_the_cache():
    class Alone(Takes):
        @hookimpl
        def compile_context(self):
            return None

    with pytest.raises(Uncacheable, match="compile_context may change anything"):
        keys(nn.ReLU(), (X,), [Alone("alone", ("relu.default",))])


def opaque(program) -> None:
    next(iter(program.graph.nodes)).meta["vendor"] = object()


def in_a_table(program) -> None:
    # As a Triton kernel is called: by its number in a table of this process.
    node = next(node for node in program.graph.nodes if "leaky_relu" in str(node.target))
    node.target, node.args = triton_kernel_wrapper_functional, ()
    node.kwargs = {"kernel_idx": 0, "constant_args_idx": 0}


def own_function(program) -> None:
    next(n for n in program.graph.nodes if "leaky_relu" in str(n.target)).target = own_function


def sparse(program) -> None:
    mode = FakeTensorMode()
    next(iter(program.graph.nodes)).meta["val"] = mode.from_tensor(torch.eye(2).to_sparse())


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (opaque, r"has meta\['vendor'\]: a value of object"),
        (in_a_table, "triton_kernel_wrapper_functional may stand for code that is elsewhere"),
        (own_function, "calls <function own_function .* the version of its code is unknown"),
        (sparse, "a torch.sparse_coo tensor"),
    ],
)
def test_what_can_not_be_hashed_has_no_key(change, why):
    with pytest.raises(Uncacheable, match=why):
        changed_keys(change)


def test_what_lies_around_a_view_counts():
    """Some backends store the whole storage of a tensor, or its beginning."""

    def text(around: float) -> str:
        whole = torch.full((64,), around)
        whole[16:48] = 7.0
        return Digests().of("view", whole[16:48])

    assert text(0.0) == text(0.0) != text(1.0)


@pytest.mark.parametrize(
    "setting",
    [
        lambda patch: patch.setattr(torch, "get_default_dtype", lambda: torch.float64),
        lambda patch: patch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True),
        lambda patch: patch.setattr(torch, "is_autocast_enabled", lambda kind: kind == "cpu"),
    ],
    ids=["dtype", "deterministic", "autocast"],
)
def test_settings_of_torch_count(setting):
    with pytest.MonkeyPatch.context() as patch:
        setting(patch)
        assert keys_of(LOWERER, DECIDED) != BASE


def test_a_backend_that_is_wrapped_is_not_what_was_installed(monkeypatch):
    own = XnnpackBackend.preprocess

    @functools.wraps(own)
    def wrapped(*given):
        return own(*given)

    monkeypatch.setattr(XnnpackBackend, "preprocess", staticmethod(wrapped))
    with pytest.raises(Uncacheable, match="XnnpackByStructure is not of an installed version"):
        keys_of(LOWERER, DECIDED)


class Silent:
    """An option that doesn't say what it is."""

    def __repr__(self) -> str:
        return "Silent()"


def test_an_option_without_a_canonical_text_bypasses_the_cache(monkeypatch):
    monkeypatch.setattr("etdev.delegate.cache.key.origin", lambda _: ("tests 1",))
    with pytest.raises(Uncacheable, match="context has an option that is a value of Silent"):
        keys(nn.ReLU(), (X,), [InContext(told={}, option=Silent())])
