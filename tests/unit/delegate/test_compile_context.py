"""compile_context: around each call of a backend's compiler, a device at a time."""

from contextlib import contextmanager

import pytest
import torch
from attrs import define, field
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from support.toys.accelerator import Accelerator
from torch import nn

from etdev import Device, Lowerer, hookimpl
from etdev.errors import CompileError, EtdevError, PluginError

X = (torch.ones(2, 2),)


class Chain(nn.Module):
    def forward(self, x):
        return (x + x).cos() * 2


@define(eq=False)
class Watched(Accelerator):
    """Writes down which devices were prepared and given back."""

    name: str = "watched"
    seen: list = field(factory=list)

    @hookimpl
    def resolve_device(self, partition):
        return Device("cuda", 0 if "add" in partition.nodes[0] else 1)

    @hookimpl
    def compile_context(self, device):
        @contextmanager
        def prepared():
            self.seen.append(f"enter {device}")
            yield
            self.seen.append(f"leave {device}")

        return prepared()


def test_each_device_is_prepared_once_and_given_back():
    plugin = Watched(ops=("add", "mul"))
    Lowerer([plugin]).lower(Chain(), X)
    assert plugin.seen == ["enter cuda:0", "leave cuda:0", "enter cuda:1", "leave cuda:1"]


def test_planning_prepares_nothing():
    plugin = Watched(ops=("add", "mul"))
    Lowerer([plugin]).plan(Chain(), X)
    assert plugin.seen == []


def test_a_context_that_cant_be_entered_names_the_plugin_and_the_device():
    class Broken(Watched):
        @hookimpl
        def compile_context(self, device):
            @contextmanager
            def prepared():
                raise RuntimeError("invalid device ordinal")
                yield

            return prepared()

    with pytest.raises(PluginError) as caught:
        Lowerer([Broken(ops=("add",))]).lower(Chain(), X)
    assert str(caught.value) == (
        "watched: entering compile_context for cuda:0 raised RuntimeError: invalid device ordinal; "
        "the cause is chained below"
    )


def prepared_by(enter=None, leave=None, hides=False):
    """A plugin whose context does something on its way in and out."""

    class Context:
        def __enter__(self):
            if enter:
                enter()

        def __exit__(self, *error):
            if leave:
                leave()
            return hides

    class Prepared(Accelerator):
        @hookimpl
        def compile_context(self):
            return Context()

    return Prepared(ops=("add", "mul"), backend="FailsLater")


class FailsLater(BackendDetails):
    """Compiles one partition and fails on the next."""

    compiled = 0

    @staticmethod
    def preprocess(edge_program, compile_specs):
        FailsLater.compiled += 1
        if FailsLater.compiled == 2:
            raise RuntimeError("out of memory")
        return PreprocessResult(processed_bytes=b"fake")


def lowered_with(plugin, fails=True):
    FailsLater.compiled = 0 if fails else 2
    with pytest.raises(EtdevError) as caught:
        Lowerer([plugin]).lower(Chain(), X)
    return caught.value


def test_a_context_cant_hide_that_a_partition_failed():
    error = lowered_with(prepared_by(hides=True))
    assert isinstance(error, CompileError)
    assert "forward/accelerator_1 (1 node from aten_mul_tensor): RuntimeError: out" in str(error)


def fail():
    raise RuntimeError("busy")


def test_a_context_that_fails_on_its_way_out_is_named():
    assert str(lowered_with(prepared_by(leave=fail), fails=False)) == (
        "accelerator: leaving compile_context for cpu raised RuntimeError: busy; "
        "the cause is chained below"
    )


def test_of_two_errors_that_of_the_compiler_is_told():
    assert isinstance(lowered_with(prepared_by(leave=fail)), CompileError)
