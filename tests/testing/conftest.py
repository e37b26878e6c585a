"""Which checks of the kit's own use `make test` leaves to `make suites`."""

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        # Another process takes as long as all other checks of a plugin.
        if item.name == "test_contract[hash_seeds]":
            item.add_marker(pytest.mark.suite)
