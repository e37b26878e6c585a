"""Debugging survives: debug handles, ETRecord and Inspector events equal those of ExecuTorch."""

import re

import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.devtools import Inspector
from executorch.exir import to_edge_transform_and_lower
from executorch.runtime import Runtime
from support.models import nets

from etdev import Lowerer

pytestmark = pytest.mark.usefixtures("quick_conversion")


@pytest.fixture(scope="module", params=["mlp", pytest.param("mobilenet", marks=pytest.mark.suite)])
def pair(request):
    """The same program lowered by etdev and by ExecuTorch, with example inputs."""
    module, inputs = getattr(nets, request.param)()
    return *both(module, inputs), inputs


def both(module, inputs):
    """A model's program as etdev and as ExecuTorch lower it."""
    with torch.no_grad():
        program = torch.export.export(module, inputs)
    # ExecuTorch doesn't simplify.
    lowerer = Lowerer(["cpu"], simplify=False)
    ours = lowerer.lower(program)
    theirs = to_edge_transform_and_lower(
        program, partitioner=[XnnpackPartitioner()], generate_etrecord=True
    )
    return ours.to_executorch(), theirs.to_executorch()


def source_handles(program):
    """Debug handles of the source nodes behind each instruction, in no order."""
    found = program.debug_handle_map["forward"].values()
    return sorted(
        handle for item in found for handle in ([item] if isinstance(item, int) else item)
    )


def events(program, inputs, folder):
    """Names of what ran, and on which delegate, as the Inspector tells it; None without a trace."""
    loaded = Runtime.get().load_program(program.buffer, enable_etdump=True)
    loaded.load_method("forward").execute(list(inputs))
    dump = folder / "etdump.etdp"
    loaded.write_etdump_result_to_file(str(dump), str(folder / "debug.bin"))
    if not dump.exists():
        return None
    inspector = Inspector(etdump_path=str(dump), etrecord=program.get_etrecord())
    names = [event.name for block in inspector.event_blocks for event in block.events]
    # XNNPACK numbers the ops of a delegate, and ours may be cut elsewhere.
    return sorted(re.sub(r" #\d+$", "", name) for name in names)


def test_every_source_node_is_still_found_by_its_handle(pair):
    ours, theirs, _ = pair
    assert source_handles(ours) == source_handles(theirs)


@pytest.mark.suite
def test_attention_that_is_written_in_other_ops_keeps_its_handles():
    ours, theirs = map(source_handles, both(*nets.bert(1)))
    assert {*ours} == {*theirs}


def test_each_delegate_has_a_handle_map_of_its_own(pair):
    ours, theirs, _ = pair
    mine, other = ours.delegate_map["forward"], theirs.delegate_map["forward"]
    assert [e["name"] for e in mine.values()] == [e["name"] for e in other.values()]
    assert len(mine) == len(other)


def test_the_etrecord_holds_the_same_edge_nodes(pair):
    graphs = [program.get_etrecord().edge_dialect_program.graph for program in pair[:2]]
    handles = [sorted(n.meta.get("debug_handle") or 0 for n in graph.nodes) for graph in graphs]
    assert handles[0] == handles[1]


def test_the_inspector_sees_the_same_events(pair, tmp_path):
    ours, theirs, inputs = pair
    (tmp_path / "theirs").mkdir()
    wanted = events(theirs, inputs, tmp_path / "theirs")
    if wanted is None:
        pytest.skip("this ExecuTorch's runtime writes no trace, as the wheel of 1.4.1")
    assert events(ours, inputs, tmp_path) == wanted


@pytest.mark.suite
def test_what_is_left_after_simplification_keeps_its_handle():
    module, inputs = nets.bert(1)
    with torch.no_grad():
        program = torch.export.export(module, inputs)
    plain, simple = (
        set(source_handles(Lowerer(["cpu"], simplify=simplify).lower(program).to_executorch()))
        for simplify in (False, True)
    )
    assert simple < plain
    assert 2 * len(simple) > len(plain)
