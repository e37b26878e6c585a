"""The verdicts on repros as a table: `PYTHONPATH=tests python -m support.quirks [NAME...]`."""

from __future__ import annotations

import sys
from importlib.metadata import version

from support import quirks
from support.quirks.children import LOWERER, PLAIN, Judge


def main() -> None:
    """Judge all repros, or those that are named, and print a line for each."""
    print(", ".join(f"{name} {version(name)}" for name in ("torch", "executorch")))
    print(f"{'repro':44} {'plain ExecuTorch':9} {'etdev':8}")
    plain, ours = Judge(PLAIN), Judge(LOWERER)
    for name in sys.argv[1:] or quirks.names():
        theirs, mine = plain.verdict(name), ours.verdict(name)
        print(f"{name:44} {theirs.kind:9} {mine.kind:8} {theirs.detail[:100]}".rstrip(), flush=True)
    plain.close()
    ours.close()


if __name__ == "__main__":
    main()
