"""compile_context: around each call of a backend's compiler, a device at a time."""

from contextlib import contextmanager

import pytest
import torch
from attrs import define, field
from torch import nn
from toys.accelerator import Accelerator

from etdev import Device, Lowerer, hookimpl
from etdev.errors import PluginError

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
        "watched: compile_context failed for cuda:0 with RuntimeError: invalid device ordinal; "
        "the cause is chained below"
    )


def test_what_is_no_context_is_refused():
    class Wrong(Watched):
        @hookimpl
        def compile_context(self):
            return "cuda:0"

    with pytest.raises(PluginError) as caught:
        Lowerer([Wrong(ops=("add",))]).lower(Chain(), X)
    assert str(caught.value) == (
        "watched: compile_context returned 'cuda:0'; return a context manager"
    )
