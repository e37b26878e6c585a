"""Which checks of the kit's own use `make test` leaves to `make suites`."""

import pytest

# The CPU plugin is asked all but one in each run, since its backend is in every runtime; of the
# others these, which differ most from plugin to plugin.
SLICE = ("api", "probe", "claims", "reasons", "values", "devices", "failures", "foreign_delegates")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if not item.name.startswith("test_contract["):
            continue
        check = item.callspec.params["check"].name
        # Another process takes as long as all other checks of a plugin.
        if check == "hash_seeds" or (item.cls.__name__ != "TestCpu" and check not in SLICE):
            item.add_marker(pytest.mark.suite)
