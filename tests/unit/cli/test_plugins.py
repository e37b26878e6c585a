"""etdev plugins: those that are ready, and the reason for those that are not."""

from __future__ import annotations

import json

from support.shell import cells, succeeds


def test_plugins_lists_those_that_are_ready():
    rows = {row["name"]: row for row in json.loads(succeeds("plugins --json"))["plugins"]}
    cpu = rows["cpu"]
    assert (cpu["distribution"], cpu["status"], cpu["ready"]) == ("etdev-cpu", "ready", True)
    assert cpu["devices"] == ["cpu"]
    assert {"claim_nodes", "probe"} <= set(cpu["hooks"])
    assert any(row.startswith("cpu etdev-cpu ") for row in cells(succeeds("plugins")))


def test_the_built_in_plugin_comes_last(here):
    *_, last = json.loads(succeeds("plugins --json"))["plugins"]
    assert (last["name"], last["distribution"], last["status"]) == ("portable", "etdev", "ready")
    assert last["asked"]
    (here / "registry.toml").write_text("portable = false\n")
    *_, last = json.loads(succeeds("plugins --json"))["plugins"]
    assert (last["name"], last["asked"]) == ("portable", False)


def test_a_plugin_that_the_registry_leaves_out_is_not_ready(here):
    (here / "registry.toml").write_text('unlisted = "ignore"\n[plugins.trt]\n')
    rows = {row["name"]: row for row in json.loads(succeeds("plugins --json"))["plugins"]}
    cpu = rows["cpu"]
    assert (cpu["status"], cpu["ready"]) == ("not in registry.toml", False)
    assert (cpu["devices"], cpu["hooks"]) == ([], [])


def test_a_plugin_that_is_listed_and_not_installed_is_named_with_its_line(here):
    (here / "registry.toml").write_text("strict = true\n\n[plugins.gone]\n")
    rows = {row["name"]: row for row in json.loads(succeeds("plugins --json"))["plugins"]}
    assert rows["gone"]["distribution"] == ""
    where = "not installed, but listed in registry.toml; installed are "
    assert rows["gone"]["status"].startswith(where)
    (line,) = [row for row in cells(succeeds("plugins")) if row.startswith("gone ")]
    assert line.startswith(f"gone - {where}")
