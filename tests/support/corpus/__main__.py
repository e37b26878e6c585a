"""The commands of the corpus: `digest` lowers it, `compare` compares two records of it."""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import sys
import time
from fnmatch import fnmatchcase
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from support.corpus.differences import differences, summary

PACKAGES = ("torch", "executorch", "openvino", "torchao", "transformers", "triton")


def main(arguments: list[str] | None = None) -> int:
    """Run a command, and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m support.corpus", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    digest = commands.add_parser("digest", help="lower the corpus and write a record")
    digest.add_argument("record", type=Path)
    digest.add_argument("--slice", choices=("quick", "whole"), default="whole")
    digest.add_argument("--processes", type=int, default=2, metavar="N")
    digest.add_argument("--keep", type=Path, metavar="FOLDER", help="keep files in a new folder")
    compare = commands.add_parser("compare", help="print differences; exit 1 if there are any")
    compare.add_argument("before", type=Path)
    compare.add_argument("after", type=Path)
    compare.add_argument(
        "--without-texts", action="store_true", help="ignore the texts of errors and warnings"
    )
    for command in (digest, compare):
        command.add_argument(
            "--only", nargs="+", metavar="GLOB", help="cases, such as 'zoo.state.*' or '* | cpu'"
        )
    options = parser.parse_args(arguments)
    if options.command == "compare":
        return _compare(options)
    if options.keep is not None and options.keep.exists():
        parser.error(f"{options.keep} exists already")
    return _digest(options)


def _digest(options: argparse.Namespace) -> int:
    start = time.monotonic()
    # Libraries read these when they are imported. OpenVINO's send statistics outside of CI.
    os.environ.update(ETDEV_CACHE="off", OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", CI="true")
    # What is imported stays, so looking for garbage meanwhile is lost time.
    gc.disable()
    from support.corpus.outcome import outcomes
    from support.corpus.selection import cases, quick_cases

    every = quick_cases() if options.slice == "quick" else cases(_groups(options.only))
    chosen = [case for case in every if _is_chosen(case.key, options.only)]
    if not chosen:
        print("no case has such a name", file=sys.stderr)
        return 2
    found: dict[str, Any] = {}
    for case, outcome in outcomes(chosen, options.processes, options.keep):
        found[case.key] = outcome
        if sys.stderr.isatty():
            print(f"\r\033[K{len(found)}/{len(chosen)} {case.key}", end="", file=sys.stderr)
    record = {"versions": _versions(), "cases": dict(sorted(found.items()))}
    options.record.parent.mkdir(parents=True, exist_ok=True)
    options.record.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu_s = sum(usage.ru_utime + usage.ru_stime for usage in used)
    refused = sum("error" in outcome for outcome in found.values())
    print(
        f"{len(found)} cases, {refused} of them refused; "
        f"{time.monotonic() - start:.0f} s, {cpu_s:.0f} s of processors"
    )
    return 0


def _compare(options: argparse.Namespace) -> int:
    records = [json.loads(path.read_text()) for path in (options.before, options.after)]
    before, after = (
        {key: value for key, value in record["cases"].items() if _is_chosen(key, options.only)}
        for record in records
    )
    if not before and not after:
        print("no case has such a name", file=sys.stderr)
        return 2
    old, new = (record["versions"] for record in records)
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            print(f"note: {name} is {old.get(name)} before and {new.get(name)} after")
    found = list(differences(before, after, texts=not options.without_texts))
    for difference in found:
        print(difference)
    print(summary(before, after, found))
    return int(bool(found))


def _groups(globs: list[str] | None) -> list[str] | None:
    """Return the groups that some globs can match, so that the others aren't imported."""
    names = [glob.partition(".")[0] for glob in globs or ["*"]]
    return names if all(name.isalpha() for name in names) else None


def _is_chosen(key: str, globs: list[str] | None) -> bool:
    return globs is None or any(fnmatchcase(key, glob) for glob in globs)


def _versions() -> dict[str, str]:
    found = {"python": sys.version.partition(" ")[0]}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


if __name__ == "__main__":
    sys.exit(main())
