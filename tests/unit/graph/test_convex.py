"""Convex partitions: never a cycle, never more than torch's own partitioner, groups whole."""

import sys
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etdev.graph import convex
from etdev.graph.convex import components, find_partitions, joined


def assert_convex(inputs, convexity, blocks=()):
    """Run it: the partitions in their order, everything else as soon as it can."""
    partitions = [*convexity.partitions, *map(tuple, blocks)]
    covered = Counter(node for partition in partitions for node in partition)
    assert all(count == 1 for count in covered.values())
    others = [*map(tuple, blocks), *((n,) for n in range(len(inputs)) if n not in covered)]
    ran: set[int] = set()

    def ready(unit):
        return all(source in ran or source in unit for node in unit for source in inputs[node])

    for partition in [*convexity.partitions, None]:
        while able := [unit for unit in others if ready(unit)]:
            others = [unit for unit in others if unit not in able]
            ran.update(node for unit in able for node in unit)
        if partition is not None:
            assert ready(partition), f"{partition} waits for itself or for a later partition"
            ran.update(partition)
    assert not others, "a cycle"


@st.composite
def graphs(draw, most=24):
    """DAGs with diamonds, long skips and nodes that many others read."""
    count = draw(st.integers(1, most))
    return [
        sorted(draw(st.sets(st.integers(0, node - 1), max_size=3))) if node else []
        for node in range(count)
    ]


@st.composite
def supported(draw):
    inputs = draw(graphs())
    nodes = draw(st.sets(st.integers(0, len(inputs) - 1)))
    return inputs, sorted(nodes)


def torch_partitions(inputs, support):
    """What torch's CapabilityBasedPartitioner makes of it."""
    import torch
    from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
    from torch.fx.passes.operator_support import OperatorSupportBase

    graph = torch.fx.Graph()
    start = graph.placeholder("x")
    nodes = []
    for sources in inputs:
        args = [nodes[s] for s in sources] or [start]
        nodes.append(graph.call_function(max if len(args) > 1 else abs, tuple(args)))
    graph.output(tuple(nodes))
    chosen = {nodes[n] for n in support}

    class Support(OperatorSupportBase):
        def is_node_supported(self, submodules, node):
            return node in chosen

    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    partitioner = CapabilityBasedPartitioner(module, Support(), allows_single_node_partition=True)
    return partitioner.propose_partitions()


@settings(max_examples=150, deadline=None)
@given(supported())
def test_never_more_partitions_than_torch_on_the_same_support(case):
    inputs, support = case
    convexity = find_partitions(inputs, [[node] for node in support])
    assert_convex(inputs, convexity)
    assert sorted(node for partition in convexity.partitions for node in partition) == support
    assert convexity.torn == {}
    assert len(convexity.partitions) <= len(torch_partitions(inputs, support))


@st.composite
def grouped(draw):
    inputs = draw(graphs())
    homes = draw(st.lists(st.integers(-1, 4), min_size=len(inputs), max_size=len(inputs)))
    groups = [[n for n, home in enumerate(homes) if home == group] for group in range(5)]
    return inputs, [group for group in groups if group]


@settings(max_examples=300, deadline=None)
@given(grouped(), st.booleans())
def test_groups_stay_whole_or_are_refused_with_a_node_that_tears_them(case, merge):
    inputs, groups = case
    convexity = find_partitions(inputs, groups, merge=merge)
    assert_convex(inputs, convexity)
    for index, group in enumerate(groups):
        homes = [set(group) & set(partition) for partition in convexity.partitions]
        if index in convexity.torn:
            assert not any(homes)
            assert convexity.torn[index] not in group
        else:
            assert set(group) in homes


@settings(max_examples=200, deadline=None)
@given(supported(), st.data())
def test_partitions_of_two_plugins_form_no_cycle_together(case, data):
    inputs, support = case
    first = data.draw(st.sets(st.sampled_from(support))) if support else set()
    one = find_partitions(inputs, [[node] for node in sorted(first)])
    rest = [[node] for node in support if node not in first]
    two = find_partitions(inputs, rest, one.partitions)
    assert_convex(inputs, two, one.partitions)


@settings(max_examples=60, deadline=None)
@given(supported())
def test_merge_off_gives_a_partition_per_group(case):
    inputs, support = case
    convexity = find_partitions(inputs, [[node] for node in support], merge=False)
    assert_convex(inputs, convexity)
    assert len(convexity.partitions) == len(support)


def test_only_a_group_with_a_node_between_is_torn():
    # 0 -> 1 -> 2: a group of the ends is torn by the middle.
    convexity = find_partitions([[], [0], [1]], [[0, 2]])
    assert (convexity.partitions, convexity.torn) == ((), {0: 1})


def test_groups_that_wait_for_each_other_become_one():
    # a0 -> b0 and b1 -> a1: two groups that need each other's nodes are one partition.
    convexity = find_partitions([[], [0], [], [2]], [[0, 3], [1, 2]])
    assert convexity.partitions == ((0, 1, 2, 3),)


def test_groups_that_wait_for_each_other_become_one_even_without_merging():
    convexity = find_partitions([[], [0], [], [2]], [[0, 3], [1, 2]], merge=False)
    assert convexity.partitions == ((0, 1, 2, 3),)


def test_what_the_last_reader_needs_is_computed_beside_it():
    # 0 depends on nothing and is read by 3 alone, behind the unsupported 2.
    convexity = find_partitions([[], [], [1], [2, 0]], [[0], [1], [3]])
    assert convexity.partitions == ((1,), (0, 3))
    assert convexity.split_by == (None, 2)


def test_a_chain_of_thousands_needs_no_recursion():
    inputs = [[node - 1] if node else [] for node in range(20_000)]
    assert len(find_partitions(inputs, [list(range(20_000))]).partitions) == 1


def calls(size, width, apart):
    """How many functions are called to partition a chain of some groups."""
    total = 0

    def count(frame, event, argument):
        nonlocal total
        total += event in ("call", "c_call")

    step = width + apart
    inputs = [[node - 1] if node else [] for node in range(size * step)]
    groups = [list(range(start, start + width)) for start in range(0, size * step, step)]
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        find_partitions(inputs, groups)
    finally:
        sys.setprofile(before)
    return total


@pytest.mark.parametrize(("width", "apart"), [(1, 0), (1, 1), (2, 0), (2, 1), (30, 0), (30, 5)])
def test_all_work_grows_with_the_number_of_groups(width, apart):
    small, large = (calls(size, width, apart) for size in (100, 400))
    # Four times the groups, and a little for what does not divide; and few calls for each unit.
    assert large <= 4.3 * small
    assert large <= 400 * (60 + 5 * width + 30 * apart)


def between(count):
    """Groups of two, with a node between them that belongs to one partition of another plugin."""
    inputs = [[] if node % 3 == 0 else [node - 1] for node in range(3 * count)]
    groups = [[node, node + 2] for node in range(0, 3 * count, 3)]
    return inputs, groups, [list(range(1, 3 * count, 3))]


def tiles(count):
    """Groups of two in a chain that overlap like tiles, with nodes of nobody's between."""
    inputs = [[node - 1] if node else [] for node in range(3 * count + 6)]
    return inputs, [[node, node + 4] for node in range(0, 3 * count, 3)], []


@pytest.mark.parametrize("case", [between, tiles])
def test_many_torn_groups_take_no_longer_than_their_number(case, monkeypatch):
    walked = []

    def counted(reads):
        walked.append(len(reads))
        return components(reads)

    monkeypatch.setattr(convex, "components", counted)

    def work(count):
        walked.clear()
        find_partitions(*case(count))
        return sum(walked)

    # As often as the groups can be halved; one after the other it was 16 times as much.
    assert work(1600) < 6 * work(400)


def test_a_group_that_a_partition_lies_between_is_lost_and_others_are_not():
    # Through the other group, and only through it, the wide one waits for itself.
    inputs = [[], [0], [], [2], [3], [4]]
    convexity = find_partitions(inputs, [[0, 5], [1, 2, 4]], [[3]])
    assert (convexity.partitions, convexity.torn) == (((0, 5),), {1: 3})


@given(st.lists(st.lists(st.integers(0, 30), max_size=5), max_size=15))
def test_joined_groups_are_the_connected_ones(groups):
    result = joined(groups)
    members = [member for group in result for member in group]
    assert sorted(members) == sorted({member for group in groups for member in group})
    home = {member: index for index, group in enumerate(result) for member in group}
    assert all(len({home[member] for member in group}) == 1 for group in groups if group)
    # No two can be told apart that nothing joins.
    for group in result:
        reached, grown = {group[0]}, True
        while grown:
            sharing = [set(given) for given in groups if reached & set(given)]
            grown = not set().union(*sharing) <= reached
            reached |= set().union(*sharing)
        assert reached == set(group)


def test_groups_are_in_the_order_in_which_they_begin():
    assert joined([["b"], ["c", "a"], [], ["d", "b"], ["e"]]) == [["b", "d"], ["c", "a"], ["e"]]
