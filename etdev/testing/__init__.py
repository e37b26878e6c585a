"""The test kit for plugin authors: a contract to hold a plugin to, tiny programs, and fakes.

`PluginConformance` needs pytest, `pip install etdev[testing]`; `run` needs nothing but etdev.
"""

from etdev.testing.contract import CHECKS, Check
from etdev.testing.requirements import Requirements
from etdev.testing.scoreboard import Scoreboard, run
from etdev.testing.simulation import Simulation

__all__ = ["CHECKS", "Check", "Requirements", "Scoreboard", "Simulation", "run"]
