"""Groups that share a member are one, in linear time."""

from hypothesis import given
from hypothesis import strategies as st

from etdev.graph.convex import joined


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
