"""Seeds: programs are planned in another process, under another PYTHONHASHSEED.

Run as a module, this file is that process: it reads a plugin from stdin and writes plans to stdout.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from etdev.lowerer import Lowerer
from etdev.registry import Registry
from etdev.testing.programs import exported

# Text hashes by it there; this process has another one, or a random one.
SEED = "4711"


class Stays(Exception):
    """A plugin can't be sent to another process; the text is the reason."""


def plans(plugin: object, kinds: Sequence[type]) -> dict[type, str]:
    """Plan programs in a process of its own.

    Args:
        plugin: Who is asked.
        kinds: Classes of `etdev.testing.programs`.

    Returns:
        The plan of each as JSON.

    Raises:
        Stays: The plugin can't be pickled, or not be made there.
    """
    try:
        # It comes with loky; only it can send what a test module defines.
        import cloudpickle

        data = cloudpickle.dumps(plugin)
    except Exception as error:
        raise Stays(str(error)) from error
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PYTHONHASHSEED": SEED,
    }
    names = [kind.__name__ for kind in kinds]
    done = subprocess.run(
        [sys.executable, "-m", __name__, *names],
        input=data,
        env=environment,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise Stays(done.stderr.decode(errors="replace").strip().rpartition("\n")[2])
    texts: list[str] = pickle.loads(done.stdout)
    return dict(zip(kinds, texts, strict=True))


def _main(names: Sequence[str]) -> None:
    from etdev.testing import programs

    data = sys.stdin.buffer.read()
    # What libraries print is not among the results.
    results = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    texts = []
    for name in names:
        plugin: Any = pickle.loads(data)
        lowerer = Lowerer([plugin], registry=Registry())
        texts.append(lowerer.plan(exported(getattr(programs, name))).to_json())
    with results:
        results.write(pickle.dumps(texts))


if __name__ == "__main__":
    _main(sys.argv[1:])
