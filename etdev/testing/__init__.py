"""Test kit for plugin authors: the contract of a plugin as checks, tiny programs, and fakes.

`PluginConformance` needs pytest, `pip install etdev[testing]`; `run` needs only etdev.
"""

from etdev.testing.contract import CHECKS, Check
from etdev.testing.scoreboard import Scoreboard, run
from etdev.testing.simulation import Simulation
from etdev.testing.subject import Requirements

__all__ = ["CHECKS", "Check", "Requirements", "Scoreboard", "Simulation", "run"]
