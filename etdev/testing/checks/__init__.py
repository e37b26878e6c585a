"""The checks in the order of a report: planning first, running last."""

# Each file adds its own to the contract.
from etdev.testing.checks import planning as planning  # isort: skip
from etdev.testing.checks import repeating as repeating  # isort: skip
from etdev.testing.checks import neighbours as neighbours  # isort: skip
from etdev.testing.checks import compiling as compiling  # isort: skip
from etdev.testing.checks import values as values  # isort: skip
