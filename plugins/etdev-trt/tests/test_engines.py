"""Engines against torch-tensorrt's own partitioner and serialiser: same nodes, same bytes."""

import base64
import copy
import inspect
import operator

import pytest
import torch
from etdev_trt.engine import engines
from etdev_trt.plugin import TrtPlugin
from etdev_trt.testing import builder
from etdev_trt.testing.programs import (
    ENGINE,
    Engines,
    X,
    exported,
    metadata,
    run_engine,
)
from executorch.exir import EdgeCompileConfig, to_edge, to_edge_transform_and_lower
from executorch.exir.lowered_backend_module import get_lowered_submodules
from support.toys.torch_tensorrt import VERSION
from torch import nn
from torch.export.graph_signature import (
    CustomObjArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
)

import etdev
from etdev import Device, EtdevWarning, Lowerer
from etdev.errors import ClaimError, DeviceError
from etdev.pte.read import read

pytestmark = pytest.mark.usefixtures("torch_tensorrt", "quick_conversion")


def delegates(manager):
    """Payload and compile specs of each delegate, in the order in which they run."""
    graph = manager.exported_program().graph_module
    return [
        (module.processed_bytes, [(spec.key, spec.value) for spec in module.compile_specs])
        for _, module, _ in get_lowered_submodules(graph)
    ]


def upstream(program):
    """The program lowered by torch-tensorrt's own partitioner."""
    from torch_tensorrt.executorch.partitioner import TensorRTPartitioner

    config = EdgeCompileConfig(_check_ir_validity=False)
    partitioner = [TensorRTPartitioner()]
    return to_edge_transform_and_lower(program, partitioner=partitioner, compile_config=config)


def parsed(payload):
    """What torch-tensorrt's own parser reads in a payload."""
    from torch_tensorrt.executorch.serialization import deserialize_engine

    return deserialize_engine(payload)[1]


def bindings(payload):
    """Names of a payload's inputs and of its outputs, in order."""
    both = parsed(payload).io_bindings
    return [b.name for b in both if b.is_input], [b.name for b in both if not b.is_input]


@pytest.fixture(scope="module")
def two_gpus(torch_tensorrt):
    """A program with engines for two GPUs, and lowered by the plugin."""
    program = exported(Engines("1%9", "2%9"))
    return program, Lowerer(["trt"]).lower(program)


# Claims


def test_every_engine_is_a_delegate_of_its_own_with_its_bytes_inside():
    plan = Lowerer(["trt"]).plan(exported(Engines("0%9", "0%9")))["forward"]
    assert [part.plugin for part in plan.partitions] == ["trt", "trt"]
    ops = [[plan.ledger[n].op for n in part.nodes[:1]] for part in plan.partitions]
    assert ops == [["tensorrt.no_op_placeholder_for_execute_engine.default"]] * 2
    inside = [[c.target for c in part.constants if c.inside] for part in plan.partitions]
    assert inside == [["engine_0"], ["engine_1"]]
    assert not any(e.op.startswith("tensorrt") for e in plan.ledger if e.falls_back)


def test_engines_that_feed_each_other_stay_apart():
    class Chain(Engines):
        def forward(self, x):
            (y,) = run_engine([x], self.engine_0)
            return run_engine([y], self.engine_1)[0]

    lowered = Lowerer(["trt"]).lower(exported(Chain("0", "0")))
    assert len(delegates(lowered.edge)) == 2


def test_engines_are_known_by_schema_in_both_dialects():
    program = exported(Engines("3%9"))
    edge = to_edge(program).exported_program()
    for dialect in (program, edge):
        (engine,) = engines(dialect).values()
        assert (engine.name, engine.device()) == ("net_0", Device("cuda", 3))
    assert type(next(iter(engines(edge).values())).node.target).__name__ == "EdgeOpOverload"


def test_an_engine_object_is_an_engine_whose_fields_the_graph_does_not_show():
    program = exported(Engines("3%9"))
    (placeholder,) = engines(program).values()
    node = placeholder.node
    node.target = torch.ops.tensorrt.execute_engine.default
    node.args = (node.args[0], node.args[4])
    (engine,) = engines(copy.copy(program)).values()
    assert (engine.fields, engine.device(), engine.fault()) == ((), None, None)


# Constants


class Cache(nn.Module):
    """An engine that reads and writes a cache, which 2.14 can express as an aliased output."""

    def __init__(self, aliased=""):
        super().__init__()
        self.aliased = aliased
        self.register_buffer("engine", torch.frombuffer(bytearray(ENGINE), dtype=torch.uint8))
        self.register_buffer("cache", torch.zeros(2, 4))
        self.register_buffer("scale", torch.full((2, 4), 2.0))

    def forward(self, x):
        y, written = run_engine(
            [x, self.cache, self.scale],
            self.engine,
            inputs="x%cache%scale",
            outputs="y%new_cache",
            aliased=self.aliased,
            known=metadata("x%cache%scale", "y" if self.aliased else "y%new_cache"),
        )
        self.cache.copy_(written)
        return y


@pytest.mark.versions
@pytest.mark.skipif(
    VERSION < "2.14" and torch.__version__ >= "2.14",
    reason="torch-tensorrt 2.13 binds in torch 2.13's order; with torch 2.14 the probe refuses it",
)
def test_a_cache_that_an_engine_writes_stays_outside_and_so_does_all_else_it_reads():
    lowered = Lowerer(["trt"]).lower(exported(Cache()))
    (part,) = lowered.plan.partitions
    storage = {c.target: (c.mutated, c.inside) for c in part.constants}
    assert storage == {"engine": (False, True), "cache": (True, False), "scale": (False, False)}
    (payload, _) = delegates(lowered.edge)[0]
    # The runtime binds by position, and so the engine's own names are in the delegate's order.
    given = [tensor.name.removeprefix("b_") for tensor in part.inputs]
    assert sorted(given) == ["cache", "scale", "x"]
    assert bindings(payload) == (given, ["y", "new_cache"])
    signature = lowered.edge.exported_program().graph_signature
    assert list(signature.buffers_to_mutate.values()) == ["cache"]
    lowered.to_executorch()


@pytest.mark.versions
@pytest.mark.skipif(VERSION < "2.14", reason="torch-tensorrt 2.14 brought aliases")
def test_an_aliased_cache_makes_the_second_kind_of_blob():
    aliased = "new_cache@cache@kv_cache_update"
    lowered = Lowerer(["trt"]).lower(exported(Cache(aliased)))
    (payload, _) = delegates(lowered.edge)[0]
    assert payload[:4] == b"TR02"
    assert parsed(payload).aliased_io == {"new_cache": ("cache", "kv_cache_update")}
    assert TrtPlugin().payload_device("TensorRTBackend", payload, None) == Device("cuda", 0)


class Rewired(Cache):
    """A cache that `zero_copy_kv` made its own update: no op reads the engine's second output."""

    def forward(self, x):
        return run_engine(
            [x, self.cache, self.scale],
            self.engine,
            inputs="x%cache%scale",
            outputs="y%new_cache",
            aliased=self.aliased,
            known=metadata("x%cache%scale", "y"),
        )[0]


@pytest.mark.versions
@pytest.mark.skipif(VERSION < "2.14", reason="torch-tensorrt 2.14 brought aliases")
def test_an_output_that_zero_copy_kv_left_out_is_refused_by_name():
    """Read in pytorch/TensorRT#4667, which is not released: its update would be lost."""
    with pytest.raises(ClaimError, match=r"\[0\] are read.*and leave zero_copy_kv out"):
        Lowerer(["trt"]).plan(exported(Rewired("new_cache@cache@kv_cache_update")))


# Lowering


@pytest.mark.versions
def test_one_engine_on_the_first_gpu_gives_torch_tensorrts_own_bytes():
    program = exported(Engines("0%9%0%0%NVIDIA H200"))
    # ExecuTorch's own path doesn't simplify.
    ours, theirs = Lowerer(["trt"], simplify=False).lower(program), upstream(program)
    assert delegates(ours.edge) == delegates(theirs)
    # `Lowered.to_executorch` adds a digest.
    assert ours.edge.to_executorch().buffer == theirs.to_executorch().buffer


class Beside(nn.Module):
    """An engine beside ops that ExecuTorch computes before it, and `Lowerer` may compute later."""

    def __init__(self):
        super().__init__()
        self.engine = Engines("0%9%0%0%NVIDIA H200")

    def forward(self, x):
        return torch.relu(torch.sin(x)) + self.engine(x)


@pytest.mark.slice("module0")
@pytest.mark.versions
@pytest.mark.parametrize("module", [Engines("0%9%0%0%NVIDIA H200"), Beside()])
def test_a_partitioner_gives_torch_tensorrts_own_program_whatever_is_around_an_engine(module):
    program = exported(module)
    config = EdgeCompileConfig(_check_ir_validity=False)
    ours = to_edge_transform_and_lower(
        program, partitioner=[etdev.partitioner(["trt"])], compile_config=config
    )
    assert ours.to_executorch().buffer == upstream(program).to_executorch().buffer


@pytest.mark.versions
def test_engines_on_several_gpus_give_torch_tensorrts_own_payloads(two_gpus):
    program, lowered = two_gpus
    ours, theirs = delegates(lowered.edge), delegates(upstream(program))
    assert [payload for payload, _ in ours] == [payload for payload, _ in theirs]
    assert [specs for _, specs in ours] == [
        [("target_device", b"cuda:1")],
        [("target_device", b"cuda:2")],
    ]


@pytest.mark.versions
def test_inputs_are_bound_in_the_order_in_which_the_delegate_gets_them():
    class Swapped(nn.Module):
        def __init__(self):
            super().__init__()
            data = torch.frombuffer(bytearray(ENGINE), dtype=torch.uint8)
            self.register_buffer("engine", data)

        def forward(self, x, y):
            first = y * 2
            return run_engine([x, first, y], self.engine, inputs="x%first%y")[0]

    lowered = Lowerer(["trt"]).lower(exported(Swapped(), X, X + 1))
    (part,) = lowered.plan.partitions
    assert [tensor.name for tensor in part.inputs] == ["x", "aten_mul_tensor", "y"]
    assert bindings(delegates(lowered.edge)[0][0])[0] == ["x", "first", "y"]


def test_the_budget_for_weight_streaming_is_written_as_torch_tensorrt_writes_it():
    plan = Lowerer([TrtPlugin(weight_streaming_budget=5)]).plan(exported(Engines("0")))
    (part,) = plan.partitions
    assert [(spec.key, spec.value) for spec in part.compile_specs] == [
        ("weight_streaming_budget", b"5"),
        ("target_device", b"cuda:0"),
    ]


def test_a_partitioner_made_of_the_plugin_gives_the_same_delegates(two_gpus):
    program, lowered = two_gpus
    config = EdgeCompileConfig(_check_ir_validity=False)
    manager = to_edge_transform_and_lower(
        program, partitioner=[etdev.partitioner(["trt"])], compile_config=config
    )
    assert delegates(manager) == delegates(lowered.edge)


# Engines that no runtime can run


@pytest.mark.parametrize(
    ("module", "fault"),
    [
        (
            Engines("0", allocator="1"),
            "needs an output allocator, because the shape of an output depends on the data; "
            "compile the model with fallback_data_dependent_ops=True",
        ),
        (
            Engines("0", outputs="y%z", known=metadata("x", "y")),
            "has 2 outputs, and [0] are read, in this order; "
            "read all of them in their order, or compile the model without the others",
        ),
        (
            Engines("0", inputs="x%z"),
            "has 2 inputs and is given 1 tensors; give it a tensor of its own for each input",
        ),
    ],
)
def test_an_engine_that_no_runtime_can_run_is_refused_by_name(module, fault):
    with pytest.raises(ClaimError) as caught:
        Lowerer(["trt"]).plan(exported(module))
    assert str(caught.value) == (
        "trt: engine net_0 (tensorrt_no_op_placeholder_for_execute_engine_default) of method "
        f"'forward' {fault}"
    )


def test_an_engine_in_a_branch_is_refused_by_name():
    class Branches(Engines):
        def forward(self, x):
            known = metadata("x", "y")

            def run(x, engine):
                return run_engine([x], engine, name="branch", known=known)[0].clone()

            def skip(x, engine):
                return x.clone()

            return torch.cond(x.sum() > 0, run, skip, (x, self.engine_0))

    with pytest.raises(
        ClaimError, match=r"engine branch \(.*\) of method 'forward' is in a branch"
    ):
        Lowerer(["trt"]).plan(exported(Branches("0")))


# Devices


def test_each_engine_is_labelled_with_its_own_gpu(tmp_path):
    lowered = Lowerer(["trt", "cpu"]).lower(exported(Engines("1%9", "2%9")))
    mine = [part for part in lowered.plan.partitions if part.plugin == "trt"]
    assert [(str(p.device), p.device_source) for p in mine] == [
        ("cuda:1", "derived"),
        ("cuda:2", "derived"),
    ]
    (method,) = read(lowered.save(tmp_path / "engines.pte")).methods
    devices = {d.devices for d in method.delegates if d.backend_id == "TensorRTBackend"}
    assert devices == {(Device("cuda", 1),), (Device("cuda", 2),)}


def test_a_pin_is_taken_as_it_is_for_all_engines():
    program = exported(Engines("1%9", "nonsense"))
    with pytest.warns(EtdevWarning) as caught:
        plan = Lowerer(["trt"], devices={"trt": "cuda:3"}, strict=True).plan(program)
    # Of the other engine nothing had to be assumed.
    messages = [str(warning.message) for warning in caught if warning.category is EtdevWarning]
    assert messages == [
        "trt: forward/trt_0 is put on cuda:3 (pinned), but engine net_0 was built for cuda:1 and "
        "runs there; build it again"
    ]
    assert [(str(p.device), p.device_source) for p in plan.partitions] == [("cuda:3", "pinned")] * 2
    assert all(len(part.compile_specs) == 1 for part in plan.partitions)


UNREADABLE = ["", "%", "nonsense", "1.0%9", "1 0%9"]


def test_a_device_that_cannot_be_read_is_assumed_with_a_warning():
    program = exported(Engines("2%9", *UNREADABLE))
    messages = [
        f"trt: had to assume cuda:0 for forward/trt_{i}: the device field of engine net_{i} is "
        f'{raw!r}; pin it: devices={{"trt": "cuda:0"}}'
        for i, raw in enumerate(UNREADABLE, 1)
    ]
    with pytest.warns(EtdevWarning) as caught:
        plan = Lowerer(["trt"]).plan(program)
    assert [str(w.message) for w in caught if w.category is EtdevWarning] == messages
    first, *others = [(str(part.device), part.device_source) for part in plan.partitions]
    assert first == ("cuda:2", "derived")
    assert others == [("cuda:0", "assumed")] * len(UNREADABLE)
    with pytest.raises(DeviceError) as error:
        Lowerer(["trt"], strict=True).plan(program)
    assert str(error.value) == messages[0]


@pytest.mark.versions
def test_torch_tensorrt_labels_every_readable_device_alike():
    from torch_tensorrt.executorch.backend import _parse_device_id

    for index in (0, 1, 7, 127, " 1", "+1", "01", "1_0", "٣", "1 "):
        (engine,) = engines(exported(Engines(f"{index}%9%0%0%GPU"))).values()
        assert engine.device() == Device("cuda", _parse_device_id(engine.device_field))


@pytest.mark.parametrize("index", [-1, 128, 9999])
def test_an_engine_for_a_gpu_that_cannot_exist_is_refused(index):
    with pytest.raises(ClaimError) as caught:
        Lowerer(["trt"]).plan(exported(Engines(f"{index}%9")))
    assert caught.value.what.endswith(f"was built for GPU {index}, which can't exist")


@pytest.mark.parametrize("field", ["nonsense%9", " 1%9", "+1%9", "01%9", "1_0%9", "٣%9"])
@pytest.mark.filterwarnings("ignore:trt. had to assume")
def test_label_and_payload_agree_for_every_device_field(field, tmp_path):
    path = Lowerer(["trt"]).lower(exported(Engines(field))).save(tmp_path / "engine.pte")
    ((delegate,),) = [method.delegates for method in read(path, Lowerer(["trt"]).plugins).methods]
    assert delegate.devices == (delegate.payload_device,)


# An engine that no plugin takes


@pytest.mark.versions
def test_positions_of_the_fields_are_torch_tensorrts():
    from etdev_trt import engine
    from torch_tensorrt.dynamo.runtime import _TorchTensorRTModule as theirs

    ours = {name: value for name, value in vars(engine).items() if name.isupper()}
    assert ours["_DEVICE"] == theirs.DEVICE_IDX
    assert ours["_BYTES"] == theirs.ENGINE_IDX
    assert ours["_NAME"] == theirs.NAME_IDX
    assert ours["_INPUTS"] == theirs.INPUT_BINDING_NAMES_IDX
    assert ours["_OUTPUTS"] == theirs.OUTPUT_BINDING_NAMES_IDX
    assert ours["_NEEDS_ALLOCATOR"] == theirs.REQUIRES_OUTPUT_ALLOCATOR_IDX


# Programs as torch-tensorrt's exporter leaves them


class EngineObject:
    """Stands in for `torch.classes.tensorrt.Engine`, which is in torch-tensorrt's C++ library."""

    def __init__(self, fields):
        self.fields = fields

    def __getstate__(self):
        return (self.fields,)

    def __deepcopy__(self, _):
        return self


def engine_object(program, engine):
    """The engine of a placeholder node as an object."""
    fields = list(engine.fields)
    data = program.state_dict[program.graph_signature.inputs_to_buffers[engine.constant]]
    fields[3] = base64.b64encode(bytes(data.tolist())).decode()
    return EngineObject(fields)


def with_objects(program):
    """A program whose engines are objects, as `torch_tensorrt.dynamo.compile` makes them."""
    graph, specs = program.graph, list(program.graph_signature.input_specs)
    constants = dict(program.constants)
    for index, engine in enumerate(engines(program).values()):
        name = f"object_{index}"
        constants[name] = engine_object(program, engine)
        held = CustomObjArgument(name, "tensorrt.Engine", None)
        with graph.inserting_before(next(iter(graph.nodes))):
            placeholder = graph.placeholder(name)
        placeholder.meta["val"] = held
        specs.insert(0, InputSpec(InputKind.CUSTOM_OBJ, held, name))
        engine.node.target = torch.ops.tensorrt.execute_engine.default
        engine.node.args = (engine.node.args[0], placeholder)
    signature = ExportGraphSignature(specs, program.graph_signature.output_specs)
    return program._update(program.graph_module, signature, constants=constants)


@pytest.mark.versions
def test_engine_objects_are_lowered_like_placeholders(two_gpus):
    _, theirs = two_gpus
    program = with_objects(exported(Engines("1%9", "2%9")))
    before = str(program.graph)
    ours = Lowerer(["trt"]).lower(program)
    assert delegates(ours.edge) == delegates(theirs.edge)
    assert str(program.graph) == before
    assert not any(name.startswith("_trt") for name in program.state_dict)


# State that an engine returns, for the runtime to copy back


class State(nn.Module):
    """Two buffers that are no KV caches."""

    def __init__(self):
        super().__init__()
        self.register_buffer("ring", torch.zeros(2, 4))
        self.register_buffer("total", torch.zeros(2, 4))

    def forward(self, x):
        self.total.add_(x)
        self.ring.copy_(torch.roll(self.ring, 1, 0) + x)
        return torch.tanh(self.ring) * 2


class BuiltEngine(nn.Module):
    """Stands in for torch-tensorrt's module of an engine; torch.export traces a placeholder."""

    def __init__(self, fake):
        super().__init__()
        self.inputs, self.outputs = map(
            "%".join, (fake.input_binding_names, fake.output_binding_names)
        )
        self.register_buffer("data", torch.frombuffer(bytearray(ENGINE), dtype=torch.uint8))

    def forward(self, *tensors):
        values = run_engine([*tensors], self.data, inputs=self.inputs, outputs=self.outputs)
        return values[0] if len(values) == 1 else values


def compiled_state():
    """State as torch-tensorrt compiles it, with a stand-in for its engine."""
    from torch_tensorrt import Device as Gpu
    from torch_tensorrt.dynamo import compile as compile_program

    with builder.installed():
        options = {"min_block_size": 1, "device": Gpu(gpu_id=0)}
        compiled = compile_program(exported(State()), arg_inputs=[X], **options)
    ((name, engine),) = compiled.named_children()
    setattr(compiled, name, BuiltEngine(engine))
    return compiled


def retraced():
    return exported(compiled_state())


def retraced_with_objects():
    return with_objects(retraced())


def legacy():
    """Of torch-tensorrt's own exporter."""
    from torch_tensorrt.dynamo import _exporter

    compiled = compiled_state()
    program = exported(compiled)
    (engine,) = engines(program).values()
    ((_, module),) = compiled.named_children()
    module.engine = engine_object(program, engine)
    return _exporter.export(compiled, arg_inputs=(X,), use_legacy_exporter=True)


def mutated(manager):
    """The output of the engine that updates each buffer, and the number of the method's own."""
    program = manager.exported_program()
    nodes = {
        node.name: node.args[1]
        for node in program.graph.find_nodes(op="call_function", target=operator.getitem)
    }
    signature = program.graph_signature
    written = {buffer: nodes[name] for name, buffer in signature.buffers_to_mutate.items()}
    return written, len(signature.user_outputs)


@pytest.mark.versions
@pytest.mark.parametrize("source", [retraced, retraced_with_objects, legacy])
def test_state_that_an_engine_returns_is_copied_back_as_upstream_does(source, monkeypatch):
    program = source()
    before = str(program)
    lowered = Lowerer(["trt"]).lower(program)
    assert str(program) == before
    if VERSION < "2.14":
        # It compiles buffers into the engine as constants, and leaves no state to declare.
        assert mutated(lowered.edge) == ({}, 1)
        return
    from torch_tensorrt._features import ENABLED_FEATURES
    from torch_tensorrt.executorch._export import export

    monkeypatch.setattr(ENABLED_FEATURES, "torch_tensorrt_runtime", True, raising=False)
    assert mutated(lowered.edge) == mutated(export(program)) == ({"ring": 1, "total": 2}, 1)
    lowered.to_executorch()


@pytest.mark.versions
@pytest.mark.skipif(VERSION < "2.14", reason="torch-tensorrt 2.14 copies state back")
def test_the_call_that_declares_state_is_torch_tensorrts():
    from torch_tensorrt.dynamo._exporter import _declare_aliased_kv_mutations_on_ep as declare
    from torch_tensorrt.executorch._export import _copyback_buffers_by_method as copied

    assert [*inspect.signature(declare).parameters] == ["exp_program", "copyback_buffers"]
    assert [*inspect.signature(copied).parameters] == ["source", "method_names"]
