"""The scaffold: distributions of new plugins and backends, written for `etdev new`."""
