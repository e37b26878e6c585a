"""Growth: the loop's work is counted, not timed, and grows no faster than the program."""

from collections import Counter

import pytest
from benchmarks.chain import calls, converted, delegates, etdev_loop
from torch._export.verifier import Verifier
from torch.fx import Graph, GraphModule
from torch.fx.graph import _node_list

SMALL, LARGE = 10, 40
# Four times the partitions, and a little for what does not divide.
MOST = 4.3


class Watch:
    """Counts what is done to graphs, and separately what is done to graphs of a certain size."""

    def __init__(self, patch, least):
        self.patch, self.least = patch, least
        self.work, self.on_whole_programs = Counter(), Counter()

    def method(self, owner, name, what, graph_of):
        """Count the calls of a method that works on a graph."""
        original = getattr(owner, name)

        def run(subject, *args, **kwargs):
            self.work[what] += 1
            self.on_whole_programs[what] += len(graph_of(subject, *args).nodes) >= self.least
            return original(subject, *args, **kwargs)

        self.patch.setattr(owner, name, run)

    def nodes(self):
        """Count the nodes that walks over graphs and searches in them come by."""
        walk, search = _node_list.__iter__, Graph.find_nodes

        def visited(found):
            for node in found:
                self.work["nodes visited"] += 1
                yield node

        self.patch.setattr(_node_list, "__iter__", lambda nodes: visited(walk(nodes)))
        self.patch.setattr(Graph, "find_nodes", lambda *a, **k: list(visited(search(*a, **k))))


def watched(manager, count):
    """What the loop does to the graphs of a chain."""
    with pytest.MonkeyPatch.context() as patch:
        # A partition has six nodes; the program, split or not, has four for each partition.
        watch = Watch(patch, least=4 * count)
        watch.method(GraphModule, "recompile", "recompiles", lambda module: module.graph)
        watch.method(Verifier, "check", "validations", lambda verifier, program: program.graph)
        watch.method(Graph, "node_copy", "nodes copied", lambda graph, *rest: graph)
        watch.nodes()
        made = etdev_loop(manager)
    assert delegates(made) == count
    return watch


@pytest.fixture(scope="module")
def chains():
    chains = {count: converted(count) for count in (SMALL, LARGE)}
    etdev_loop(chains[SMALL])  # fills the caches that are filled once per process
    return chains


@pytest.fixture(scope="module")
def watches(chains):
    return [watched(chains[count], count) for count in (SMALL, LARGE)]


@pytest.mark.parametrize("what", ["recompiles", "validations", "nodes copied", "nodes visited"])
def test_work_on_graphs_grows_with_the_number_of_partitions(watches, what):
    small, large = (watch.work[what] for watch in watches)
    assert 0 < small <= large <= MOST * small


def test_all_work_grows_with_the_number_of_partitions(chains):
    small, large = (calls(chains[count]) for count in (SMALL, LARGE))
    assert large <= MOST * small


@pytest.mark.parametrize("what", ["recompiles", "validations"])
def test_the_whole_program_is_touched_equally_often_however_many_partitions(watches, what):
    small, large = (watch.on_whole_programs[what] for watch in watches)
    assert 0 < small == large <= 2
