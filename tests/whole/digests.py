"""Digests: the bytes of every .pte that the tests emit, compared before and after a change.

pytest -p digests --digests build/before.json          add -m '' for the whole matrix
python tests/digests.py build/before.json build/after.json
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

DIGESTS: dict[str, list[str]] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--digests FILE`, which processes of xdist extend by their name."""
    parser.addoption("--digests", metavar="FILE", help="Write the digest of every .pte there.")


@pytest.fixture(autouse=True)
def _digests(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Note each program that ExecuTorch emits under the name of the test."""
    from executorch.exir import EdgeProgramManager

    emit = EdgeProgramManager.to_executorch

    def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
        program = emit(self, *args, **kwargs)
        digest = hashlib.sha256(program.buffer).hexdigest()
        DIGESTS.setdefault(request.node.name, []).append(digest)
        return program

    monkeypatch.setattr(EdgeProgramManager, "to_executorch", noted)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write what this process has seen."""
    file = session.config.getoption("--digests")
    if file and DIGESTS:
        worker = getattr(session.config, "workerinput", {}).get("workerid", "main")
        path = Path(f"{file}.{worker}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(DIGESTS, indent=1))


def load(stem: str) -> dict[str, list[str]]:
    """What all processes of a run wrote."""
    found: dict[str, list[str]] = {}
    file = Path(stem)
    for part in sorted(file.parent.glob(f"{file.name}.*")):
        for name, digests in json.loads(part.read_text()).items():
            found.setdefault(name, []).extend(digests)
    return found


def main(before: str, after: str) -> int:
    """Print the tests whose programs differ; 1 if there are any."""
    old, new = load(before), load(after)
    both = sorted(old.keys() & new.keys())
    other = [name for name in both if Counter(old[name]) != Counter(new[name])]
    for name in other:
        print(f"differs: {name}")
    print(f"{len(both) - len(other)} tests emit the same bytes, {len(other)} others")
    print(
        f"only before: {len(old.keys() - new.keys())}, only after: {len(new.keys() - old.keys())}"
    )
    return bool(other)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
