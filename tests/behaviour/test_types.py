"""Types: what a type checker says of a plugin author's code, wrong and right."""

import subprocess
import sys

import pytest

RIGHT = """
import torch
from etdev import Claim, Device, Group, KeepWhole, Limits, Pin, Probe, Refusal
from torch.fx import Node

def right(node: Node, nodes: list[Node]) -> list[object]:
    return [
        Claim("X", [Group([node], "why"), Group(nodes), Group(["aten_add_tensor"])]),
        Claim("X", (), [Refusal(node, "op"), Refusal("name", "dtype", "text")], {"key": b"value"}),
        Claim("X", [], device_types=["cuda"], compile_specs=[], merge=False, compiler="Y"),
        KeepWhole([torch.ops.aten.linear.default], lambda node: True),
        Probe([Device("cuda", 1), "cpu"]), Probe(unfit="why"), Probe(),
    ]
"""
WRONG = (
    'Claim("X", [1, 2])',
    'Claim("X", ["aten_add_tensor"])',
    "Claim(1, [])",
    "Claim()",
    'Claim("X", [], ["op"])',
    'Claim("X", [], [], {"key": "value"})',
    'Claim("X", [], device_types=[0])',
    'Claim("X", [], backend="Y")',
    'Claim("X", [], merge="no")',
    "Group(3)",
    'Refusal("node", 3)',
    "Probe([0])",
    'Device("cuda", "0")',
    'Assumed("cuda", "why")',
)


@pytest.fixture(scope="module")
def complaints(tmp_path_factory):
    """What mypy says of the right code, and the wrong lines that it refuses."""
    folder = tmp_path_factory.mktemp("types")
    (folder / "right.py").write_text(RIGHT)
    lines = ["from etdev import Assumed, Claim, Device, Group, KeepWhole, Probe, Refusal", *WRONG]
    (folder / "wrong.py").write_text("\n".join(lines))
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent"]
    # torch itself is not looked into, which would take a minute.
    (folder / "mypy.ini").write_text(
        "[mypy]\ncache_dir = cache\n"
        "[mypy-torch.*,executorch.*]\nfollow_imports = skip\nignore_missing_imports = True\n"
    )
    done = subprocess.run(
        [*command, "right.py", "wrong.py"], cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert not done.stderr, done.stderr
    said = [line for line in done.stdout.splitlines() if ": error: " in line]
    right = [line for line in said if line.startswith("right.py")]
    wrong = [line.split(":")[1] for line in said if line.startswith("wrong.py")]
    return right, {lines[int(number) - 1] for number in wrong}


def test_right_code_passes(complaints):
    assert complaints[0] == []


def test_wrong_code_does_not(complaints):
    assert complaints[1] == set(WRONG)
