"""The plugins' tests run in the setting of the host's."""

pytest_plugins = ["support.setting", "support.fixtures"]
