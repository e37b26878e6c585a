"""Profiles: what runs is joined with the plan, event by event, from a real ETDump."""

from __future__ import annotations

import json
from operator import getitem
from pathlib import Path

import pytest
import torch
from executorch.devtools import Inspector
from executorch.runtime import Runtime
from support.models import nets
from support.shell import cells, invoke

from etdev import Claim, Group, Lowerer, hookimpl
from etdev.errors import RunError
from etdev.pte.instructions import steps
from etdev.runtime.profiling import profile


class Relus:
    """Takes every ReLU, so that the MLP has delegates of two plugins."""

    name = "relus"

    @hookimpl
    def claim_nodes(self, program):
        import executorch.backends.xnnpack.xnnpack_preprocess  # noqa: F401

        nodes = [node for node in program.graph.nodes if "relu" in str(node.target)]
        return Claim("XnnpackBackend", [Group([node]) for node in nodes])


@pytest.fixture(scope="module")
def lowered():
    return Lowerer([Relus(), "cpu"]).lower(*nets.mlp())


@pytest.fixture(scope="module")
def pte(lowered, tmp_path_factory) -> Path:
    return lowered.save(tmp_path_factory.mktemp("profile") / "net.pte", with_ledger=True)


def profiled(pte, plan=None, **options):
    try:
        return profile(pte, list(nets.mlp()[1]), plan=plan, **options)
    except RunError as error:
        if error.what == "the runtime writes no trace":
            pytest.skip("this ExecuTorch's runtime writes no trace, as the wheel of 1.4.1")
        raise


def test_every_delegate_and_kernel_is_told_with_plugin_modules_and_reasons(lowered, pte):
    result = profiled(pte, lowered.plan, repeat=3)
    told = {cost.name: cost for cost in result.costs}
    assert {name: (c.plugin, c.modules, c.calls) for name, c in told.items()} == {
        "cpu_0": ("cpu", ("0",), 1),
        "relus_0": ("relus", ("1",), 1),
        "cpu_1": ("cpu", ("3",), 1),
        "aten::native_layer_norm.out": ("portable", ("2",), 1),
    }
    reasons = told["aten::native_layer_norm.out"].reasons
    assert "cpu: XNNPACK has no native_layer_norm.default" in reasons
    assert sum(cost.share for cost in result.costs) == pytest.approx(1)
    times = [cost.ms for cost in result.costs]
    assert times == sorted(times, reverse=True)
    assert min(times) > 0
    assert repr(result).startswith("<Profile forward: ")
    assert "aten::native_layer_norm.out" in result._repr_html_()


def test_a_file_without_a_plan_tells_backends(pte):
    names = {cost.name for cost in profiled(pte, repeat=1).costs}
    assert {"XnnpackBackend #0", "XnnpackBackend #1", "XnnpackBackend #2"} < names


def test_each_delegate_event_has_the_handles_of_its_partition(lowered, tmp_path):
    """Two ways from an event to a plugin agree: its instruction, and its debug handles."""
    program = lowered.to_executorch()
    pte = tmp_path / "net.pte"
    pte.write_bytes(program.buffer)
    loaded = Runtime.get().load_program(program.buffer, enable_etdump=True)
    loaded.load_method("forward").execute(list(nets.mlp()[1]))
    loaded.write_etdump_result_to_file(str(tmp_path / "net.etdp"), str(tmp_path / "debug.bin"))
    if not (tmp_path / "net.etdp").exists():
        pytest.skip("this ExecuTorch's runtime writes no trace, as the wheel of 1.4.1")
    record = program.get_etrecord()
    # From a file: the Inspector finds no handles in a record that was never saved.
    record.save(tmp_path / "net.etrecord")
    paths = {"etdump_path": tmp_path / "net.etdp", "etrecord": tmp_path / "net.etrecord"}
    inspector = Inspector(**{name: str(path) for name, path in paths.items()})
    events = [event for block in inspector.event_blocks for event in block.events]
    calls = [event for event in events if event.name == "DELEGATE_CALL"]
    handles: dict[int, list[str]] = {}
    for node in record.edge_dialect_program.graph.nodes:
        handles.setdefault(node.meta.get("debug_handle", 0), []).append(node.name)
    (plan,) = lowered.plan.methods
    told = []
    for event in calls:
        step = steps(pte, "forward")[event._instruction_id]
        nodes = [name for handle in event.debug_handles for name in handles[handle]]
        owners = {plan.ledger[node].partition for node in nodes}
        assert owners == {plan.delegates[step.delegate]}
        modules = {plan.ledger[node].module for node in nodes}
        told.append((plan.ledger[nodes[0]].owner, *owners, *modules))
    assert told == [("cpu", "cpu_0", "0"), ("relus", "relus_0", "1"), ("cpu", "cpu_1", "3")]


def test_the_etrecord_has_the_graph_from_before_delegation(lowered):
    record = lowered.to_executorch().get_etrecord()
    nodes = record.edge_dialect_program.graph.nodes
    names = [n.name for n in nodes if n.op == "call_function" and n.target is not getitem]
    assert names == [entry.node for entry in lowered.plan["forward"].ledger]
    assert torch.nn.Linear.__name__ in str(
        [n.meta.get("nn_module_stack") for n in record.exported_program.graph.nodes]
    )


def test_the_command_shows_it(pte):
    profiled(pte, repeat=1)
    done = invoke("run --profile --repeat 2", pte)
    assert done.exit_code == 0, done.stderr
    rows = cells(done.stdout)
    assert rows[2] == "2 runs"
    assert rows[3] == "name calls ms share plugin modules reasons"
    assert {row.split()[0] for row in rows[4:]} == {
        "cpu_0", "relus_0", "cpu_1", "aten::native_layer_norm.out",
    }  # fmt: skip


def test_without_a_ledger_the_command_tells_how_to_know_more(lowered, tmp_path):
    path = lowered.save(tmp_path / "net.pte")
    profiled(path, repeat=1)
    hint = "For plugins, modules and reasons, lower it without --no-ledger."
    assert cells(invoke("run --profile", path).stdout)[-1] == hint
    with_ledger = lowered.save(tmp_path / "with.pte", with_ledger=True)
    assert hint not in invoke("run --profile", with_ledger).stdout


def test_the_document_has_it_on_request(pte):
    profiled(pte, repeat=1)
    document = json.loads(invoke("run --profile --json", pte).stdout)
    assert {cost["kind"] for cost in document["profile"]["costs"]} == {"delegate", "kernel"}


def test_a_trace_without_events_is_no_profile(pte, monkeypatch):
    monkeypatch.setattr("etdev.runtime.profiling._events", lambda dump: [])
    with pytest.raises(RunError, match="the runtime's trace has no events; use ExecuTorch"):
        profile(pte, [torch.ones(2, 8)])
