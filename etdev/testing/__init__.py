"""The test kit for plugin authors: a contract to hold a plugin to, tiny programs, and fakes.

`PluginConformance` needs pytest, `pip install etdev[testing]`; `run` needs nothing but etdev.
"""

from etdev.testing.checks import CHECKS, Check, Requirements
from etdev.testing.scoreboard import Scoreboard, run

__all__ = ["CHECKS", "Check", "Requirements", "Scoreboard", "run"]
