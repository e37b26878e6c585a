"""Buffers that methods share: one program repeats what eager PyTorch computes, in any order."""

import copy
import json
import random

import pytest
import torch
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.passes import MemoryPlanningPass
from executorch.runtime import Runtime
from support.toys.accelerator import Accelerator
from torch import nn
from torch.export import Dim

import etdev
from etdev import Device, Lowerer, Probe, hookimpl
from etdev.errors import EtdevWarning, LoweringError
from etdev.pte.read import read
from etdev.runtime.check import notes

pytestmark = pytest.mark.usefixtures("quick_conversion")
X = torch.arange(1.0, 4.0)
ARENA = 2


class Unfit:
    """A plugin that can't compile here."""

    @hookimpl
    def claim_nodes(self):
        return None

    @hookimpl
    def probe(self):
        return Probe(unfit="no accelerator")


class Method(nn.Module):
    """A function of a state and inputs; several methods may have one state."""

    def __init__(self, state, function):
        super().__init__()
        self.state, self.function = state, function

    def forward(self, *inputs):
        return self.function(self.state, *inputs)


def state(**buffers):
    module = nn.Module()
    for name, value in buffers.items():
        if isinstance(value, nn.Module):
            module.add_module(name, value)
        else:
            module.register_buffer(name, value)
    return module


def methods(shared, **functions):
    return {name: Method(shared, function) for name, function in functions.items()}


def add(net, x):
    net.total.add_(x)
    return net.total + 1


def read_total(net, x):
    return net.total * x


def outputs_of(result):
    return [result] if isinstance(result, torch.Tensor) else list(result)


def assert_repeats(program, modules, steps, exact=True):
    """Compare every output of a series of calls with eager PyTorch."""
    for step, (name, *inputs) in enumerate(steps):
        got = program.load_method(name).execute([value.clone() for value in inputs])
        with torch.no_grad():
            expected = outputs_of(modules[name](*(value.clone() for value in inputs)))
        for one, other in zip(got, expected, strict=True):
            limits = {"rtol": 0, "atol": 0} if exact else {"rtol": 1e-4, "atol": 1e-5}
            torch.testing.assert_close(
                one, other, equal_nan=True, **limits, msg=lambda t, s=step, n=name: f"{s} {n}: {t}"
            )


def assert_one_state(modules, steps, plugins=(), exact=True, lowerer=None, **shapes):
    """Lower methods, and run calls with methods loaded first, lazily, and in the other order."""
    examples = {name: inputs for name, *inputs in reversed(steps)}
    lowered = (lowerer or Lowerer(list(plugins))).lower(
        {name: (m, tuple(examples[name]), shapes.get(name)) for name, m in modules.items()}
    )
    data = bytes(lowered.to_executorch().buffer)
    for loaded in (list(modules), [], list(reversed(modules))):
        program = Runtime.get().load_program(data)
        for name in loaded:
            program.load_method(name)
        assert_repeats(program, copy.deepcopy(modules), steps, exact)
    done = lowered.verify(strict=True)
    assert done.calls >= 3 * len(modules)
    return lowered


SESSION = [
    *(("read", X), ("add", X), ("read", X * 2), ("read", X), ("add", -X * 3), ("add", X)),
    *(("read", X), ("add", X * torch.inf), ("read", X), ("add", X * torch.nan), ("read", X)),
]


WRITES_FIRST, READS_FIRST = ("add", "read"), ("read", "add")
FIRST = [[0.0], [5.0], [-0.0, 1.0, 0.0], [torch.nan, torch.inf, 2.0]]


@pytest.mark.slice("first0", "first3")
@pytest.mark.parametrize(
    ("first", "order"), [*((first, WRITES_FIRST) for first in FIRST), (FIRST[3], READS_FIRST)]
)
def test_a_reader_sees_what_a_writer_wrote_whichever_is_called_or_loaded_first(order, first):
    total = torch.tensor(first).expand(3).clone()
    both = methods(state(total=total), add=add, read=read_total)
    lowered = assert_one_state({name: both[name] for name in order}, SESSION)
    (shared,) = lowered.plan.state
    assert dict(shared.targets) == dict.fromkeys(order, "state.total")
    assert (shared.writers, shared.size_bytes) == (("add",), 12)


VALUES = {
    "number": torch.tensor(7),
    "truths": torch.tensor([True, False]),
    "int8": torch.tensor([[1, -2], [3, 4]], dtype=torch.int8),
    "uint8": torch.tensor([250, 3], dtype=torch.uint8),
    "float64": torch.tensor([0.5, -2.0], dtype=torch.float64),
    "float16": torch.tensor([0.5, -2.0], dtype=torch.float16),
    "bfloat16": torch.tensor([0.5, -2.0], dtype=torch.bfloat16),
}


@pytest.mark.suite
def test_first_values_of_every_dtype_are_kept():
    def flip(net, x):
        for value in net.buffers():
            value.copy_(value.logical_not() if value.dtype == torch.bool else value + 3)
        return x + 1

    def get(net):
        return tuple(value.clone() for value in net.buffers())

    steps = [("get",), ("flip", X), ("get",), ("flip", X), ("flip", X), ("get",)]
    shared = state(**{f"a_{name}": value for name, value in VALUES.items()})
    assert_one_state(methods(shared, flip=flip, get=get), steps)


@pytest.mark.suite
def test_partial_writers_share_a_buffer():
    def top(net, x):
        net.rows[:2].add_(x)
        return net.rows.sum()

    def some(net, x, where):
        net.rows.index_put_((where,), x.expand(2, 3))
        return net.rows[0] * 2

    def column(net, x):
        net.rows[:, 1].copy_(x[0])
        return x + net.rows[3]

    def everything(net):
        return net.rows.clone()

    both = methods(
        state(rows=torch.arange(12.0).view(4, 3)), top=top, some=some, column=column, all=everything
    )
    calls = random.Random(0)
    steps = []
    for step in range(12):
        inputs = {"top": (X + step,), "column": (X * step,), "all": ()}
        inputs["some"] = (X - step, torch.tensor([step % 4, (step + 2) % 4]))
        name = calls.choice(list(inputs))
        steps.append((name, *inputs[name]))
    steps += [("top", X), ("some", X, torch.tensor([0, 3])), ("column", X), ("all",)]
    assert_one_state(both, steps)


def test_buffers_are_the_same_by_memory_and_not_by_name():
    def add_first(net, x):
        net.one.add_(x)
        return net.one - net.two

    def add_other(net, x):
        net.one.sub_(x)
        return net.one * 2 + net.two

    first, second = torch.zeros(3), torch.ones(3)
    crossed = {
        "straight": Method(state(one=first, two=second), add_first),
        "crossed": Method(state(one=second, two=first), add_other),
    }
    steps = [(name, X * i) for i, name in enumerate(["crossed", "straight"] * 3 + ["straight"])]
    assert_one_state(crossed, steps)


def test_state_of_one_method_is_not_overwritten_by_values_of_another():
    """Loaders that share state share memory for intermediate values, too."""

    def count(net, x):
        net.count.add_(1)
        net.total.add_(x)
        return net.count * x

    def large(net, x):
        wide = (x[:, None] * torch.linspace(1, 2, 500)).cumsum(1)
        return wide.flip(1)[:, :4] + net.total[:, None]

    both = methods(state(count=torch.zeros(3), total=torch.zeros(3)), count=count, large=large)
    names = ("count", "large", "count", "large", "count")
    assert_one_state(both, [(name, X) for name in names], exact=False)


def test_parameters_may_be_state():
    def decay(net, x):
        y = net.layer(x)
        net.layer.weight.mul_(0.5)
        return y

    def use(net, x):
        return net.layer(x) + 1

    torch.manual_seed(0)
    both = methods(state(layer=nn.Linear(3, 2)), decay=decay, use=use)
    steps = [(name, X[None]) for name in ("use", "decay", "use", "decay", "decay", "use")]
    assert_one_state(both, steps, exact=False)


def test_state_in_control_flow_is_shared():
    def toggle(net, x):
        y = torch.cond(net.total.sum() > 5, lambda t, x: t * x, lambda t, x: t - x, (net.total, x))
        net.total.copy_(y)
        return y + 1

    both = methods(state(total=torch.ones(3)), toggle=toggle, read=read_total)
    steps = [(name, X) for name in ("read", "toggle", "toggle", "read", "toggle", "read")]
    assert_one_state(both, steps)


class Decoder(nn.Module):
    """Attention over a cache, whose int8 form has a scale for each row."""

    def __init__(self, quantised):
        super().__init__()
        torch.manual_seed(1)
        self.q, self.k, self.v, self.out = (nn.Linear(8, 8) for _ in range(4))
        self.quantised = quantised
        for name in ("keys", "values"):
            dtype = torch.int8 if quantised else torch.float32
            self.register_buffer(name, torch.zeros(12, 8, dtype=dtype))
            self.register_buffer(f"{name}_scale", torch.ones(12, 1))

    def store(self, name, position, rows):
        cache, scales = getattr(self, name), getattr(self, f"{name}_scale")
        if self.quantised:
            scale = rows.abs().amax(1, keepdim=True) / 127 + 1e-6
            scales.index_copy_(0, position, scale)
            rows = torch.round(rows / scale).to(torch.int8)
        cache.index_copy_(0, position, rows)
        return cache.to(torch.float32) * scales if self.quantised else cache

    def step(self, x, position):
        keys = self.store("keys", position, self.k(x))
        values = self.store("values", position, self.v(x))
        scores = self.q(x) @ keys.T / 8**0.5
        reach = torch.arange(12)[None] <= position[:, None]
        weights = torch.softmax(scores.masked_fill(~reach, -1e9), -1)
        return self.out(weights @ values)


def decoder(quantised=False):
    net = Decoder(quantised).eval()
    return methods(
        net,
        prefill=lambda net, x, position: net.step(x, position),
        decode=lambda net, x, position: net.step(x, position),
        cache=lambda net: (net.keys.clone(), net.values.clone()),
    )


def tokens(*lengths):
    """Return a prefill and decoding steps, with the cache between, for each sequence."""
    torch.manual_seed(2)
    steps = []
    for length in lengths:
        steps.append(("prefill", torch.randn(length, 8), torch.arange(length)))
        for position in range(length, length + 3):
            steps += [("decode", torch.randn(1, 8), torch.tensor([position])), ("cache",)]
    return steps


ROWS = Dim("rows", min=2, max=8)


@pytest.mark.slice("False-cpu")
@pytest.mark.parametrize("plugins", [(), ("cpu",)], ids=["portable", "cpu"])
@pytest.mark.parametrize("quantised", [False, True])
def test_a_decoder_has_the_logits_and_the_cache_of_eager(plugins, quantised):
    lowered = assert_one_state(
        decoder(quantised),
        [("decode", torch.ones(1, 8), torch.tensor([0])), *tokens(5, 2, 8)],
        plugins,
        exact=False,
        prefill=(({0: ROWS}, {0: ROWS}),),
    )
    names = {target for shared in lowered.plan.state for target in shared.targets.values()}
    assert {"state.keys", "state.values"} <= names
    inside = [c for p in lowered.plan.partitions for c in p.constants if c.inside]
    assert not names & {constant.target for constant in inside}


@pytest.mark.suite
@pytest.mark.parametrize(
    "plugins", [("openvino", "cpu"), ("cpu", "openvino"), ("openvino",)], ids=str
)
@pytest.mark.parametrize("quantised", [False, True])
def test_backends_in_any_order_share_state(plugins, quantised):
    assert_one_state(decoder(quantised), tokens(4, 4, 4), plugins, exact=False)


def test_a_delegate_never_has_shared_state_inside():
    """The backend takes what it can; only what no other method has may be its own."""
    owner = Accelerator(ops=("add.Tensor", "mul.Tensor"), device=Device("cpu"))

    def bump(net, x):
        net.total.add_(x)
        net.own.add_(x)
        return x + 1

    both = methods(state(total=torch.zeros(3), own=torch.zeros(3)), bump=bump, read=read_total)
    plan = Lowerer([owner]).plan({name: (module, (X,)) for name, module in both.items()})
    stored = {c.target: c.storage for p in plan.partitions for c in p.constants}
    assert stored["state.total"] == "outside"


def test_state_and_weights_are_told_apart():
    torch.manual_seed(0)
    net = state(layer=nn.Linear(3, 3), total=torch.zeros(3))

    def accumulate(net, x):
        net.total.add_(net.layer(x))
        return net.total * 1

    def project(net, x):
        return net.layer(net.total + x)

    both = methods(net, accumulate=accumulate, project=project)
    steps = [(name, X) for name in ("project", "accumulate", "accumulate", "project")]
    lowered = assert_one_state(both, steps, ["cpu"], exact=False)
    assert [dict(s.targets) for s in lowered.plan.state] == [
        {"accumulate": "state.total", "project": "state.total"}
    ]


@pytest.mark.suite
def test_exported_programs_and_no_simplification_share_state():
    both = methods(state(total=torch.ones(3)), add=add, read=read_total)
    programs = {name: torch.export.export(module, (X,)) for name, module in both.items()}
    lowered = Lowerer([], simplify=False).lower(programs)
    program = Runtime.get().load_program(bytes(lowered.to_executorch().buffer))
    assert_repeats(program, copy.deepcopy(both), SESSION)
    assert lowered.verify(strict=True).calls >= 6
    functional = {name: program.run_decompositions({}) for name, program in programs.items()}
    with pytest.raises(
        LoweringError, match="'add' is decomposed already; give what torch"
    ) as error:
        Lowerer([]).plan(functional)
    assert "share_state=False" in str(error.value)


def pair(first=0.0):
    both = methods(state(total=torch.full((3,), first)), add=add, read=read_total)
    return {name: (module, (X,)) for name, module in both.items()}


@pytest.mark.slice("registry")
@pytest.mark.parametrize("how", ["argument", "registry"])
def test_each_method_may_have_its_own(how, tmp_path):
    registry = tmp_path / "registry.toml"
    registry.write_text("share_state = false\n")
    settings = {"share_state": False} if how == "argument" else {"registry": registry}
    given = pair(3.0)
    lowered = Lowerer([], **settings).lower(given)
    program = Runtime.get().load_program(bytes(lowered.to_executorch().buffer))
    reader = copy.deepcopy(given["read"][0])
    for step in range(3):
        program.load_method("add")
        (got,) = program.load_method("read").execute([X])
        assert torch.equal(got, reader(X)), step
    assert "state state.total (12 bytes) is not shared, each has its own" in lowered.plan.summary
    assert lowered.verify(strict=True).calls >= 6


def test_the_file_and_the_summary_say_how_to_load_it(tmp_path):
    lowered = Lowerer([]).lower(pair())
    line = (
        "methods add, read: state state.total (12 bytes) is shared; load all from one Program of "
        "executorch.runtime, or in C++ with ExecuTorch's Module(..., share_memory_arenas=true)"
    )
    assert line in lowered.plan.summary
    artifact = read(lowered.save(tmp_path / "net.pte"))
    assert artifact.state == lowered.plan.state
    assert etdev.Plan.from_json(lowered.plan.to_json()).state == lowered.plan.state
    assert line in notes(tmp_path / "net.pte")
    assert json.loads(json.dumps(artifact.to_dict()))["state"][0]["writers"] == ["add"]


def test_views_of_one_buffer_in_two_methods_are_refused():
    rows = torch.zeros(4, 3)
    given = {
        "add": (Method(state(total=rows[:2]), lambda net, x: net.total.add_(x) + 0), (X,)),
        "read": (Method(state(rows=rows), lambda net, x: net.rows + x), (X,)),
    }
    with pytest.raises(LoweringError) as caught:
        Lowerer([]).plan(given)
    assert str(caught.value) == (
        "link methods: 'add' writes buffer 'state.total', and 'state.rows' of 'read' is another "
        "view of its memory, which a .pte can't have; register the same tensor in both methods and "
        "slice it inside, or give each method its own with share_state=False, or --no-share-state"
    )
    Lowerer([], share_state=False).plan(given)
    # Nor is it shared once a plugin is left out that can't compile here.
    lowerer = Lowerer([Unfit()], share_state=False, on_failure="fallback")
    with pytest.warns(EtdevWarning, match="Unfit is left out"):
        lowerer.lower(given)


def test_memory_that_no_loader_shares_is_refused():
    away = Accelerator(ops=("add.Tensor",), device=Device("cuda", 0))
    # It is said before anything is compiled.
    with pytest.warns(EtdevWarning, match="'add' has memory on cuda:0, which no loader"):
        Lowerer([away]).plan(pair())
    with pytest.raises(LoweringError, match="'add' has memory on cuda:0, which no loader"):
        Lowerer([away], strict=True).plan(pair())
    with pytest.warns(EtdevWarning, match="methods share state"):
        lowered = Lowerer([away]).lower(pair())
    with pytest.raises(LoweringError, match="'add' has memory on other devices, which no loader"):
        lowered.to_executorch()
    config = ExecutorchBackendConfig(enable_non_cpu_memory_planning=False)
    assert lowered.to_executorch(config)


def arenas(program):
    for plan in program.executorch_program.execution_plan:
        memory = (getattr(value.val, "allocation_info", None) for value in plan.values)
        yield {(m.memory_id, m.memory_offset_low) for m in memory if m}, plan.non_const_buffer_sizes


@pytest.mark.suite
def test_the_callers_memory_planning_is_kept():
    planner = MemoryPlanningPass(alloc_graph_input=False, share_mutable_buffers=True)
    for given in (planner, dict.fromkeys(pair(), planner)):
        config = ExecutorchBackendConfig(memory_planning_pass=given)
        found = list(arenas(Lowerer([]).lower(pair()).to_executorch(config)))
        assert all((ARENA, 0) in memory for memory, _ in found)
        assert {sizes[ARENA] for _, sizes in found} == {16 + 64}
    assert (planner.share_mutable_buffers, planner.alloc_mutable_buffers) == (True, True)
    config = ExecutorchBackendConfig(memory_planning_pass=lambda module: module)
    with pytest.raises(LoweringError, match="has no `run`, so state can't be shared"):
        Lowerer([]).lower(pair()).to_executorch(config)


def test_the_manager_of_executorch_warns_of_state():
    with pytest.warns(EtdevWarning, match=r"state\.total \(add, read\)"):
        assert Lowerer([]).lower(pair()).edge


@pytest.mark.filterwarnings("error::etdev.EtdevWarning")
def test_state_of_their_own_and_weights_in_common_are_not_shared():
    own = state(total=torch.zeros(3))
    apart = {"add": (Method(own, add), (X,)), "again": (Method(copy.deepcopy(own), add), (X,))}
    assert not Lowerer([]).plan(apart).state
    readers = methods(own, read=read_total, again=read_total)
    plan = Lowerer([]).plan({name: (module, (X,)) for name, module in readers.items()})
    assert not plan.state


def test_the_partitioner_refuses_it():
    def lower(share_state):
        programs = {name: torch.export.export(m, inputs) for name, (m, inputs) in pair().items()}
        options = {"share_state": share_state}
        partitioners = {n: [etdev.partitioner([], method=n, **options)] for n in programs}
        return to_edge_transform_and_lower(programs, partitioner=partitioners)

    for _ in range(2):
        with pytest.raises(LoweringError) as caught:
            lower(None)
        assert str(caught.value) == (
            "partitioner: methods share buffer 'state.total', and ExecuTorch gives each method its "
            "own; lower with etdev.Lowerer, or accept that with share_state=False"
        )
    assert lower(False)
