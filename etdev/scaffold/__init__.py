"""The scaffold: distributions of new plugins and backends, written for `etdev new`."""

from etdev.scaffold.names import Names
from etdev.scaffold.project import KINDS, guide, write

__all__ = ["KINDS", "Names", "guide", "write"]
