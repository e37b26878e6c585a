"""Which checks of the kit's own use `make test` leaves to `make suites`."""

import pytest

# Another process takes as long as all other checks of a plugin; one plugin's shows that it works.
ELSEWHERE = ("TestOpenVino", "TestCuda", "TestTrt")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if item.name == "test_contract[hash_seeds]" and item.cls.__name__ in ELSEWHERE:
            item.add_marker(pytest.mark.suite)
