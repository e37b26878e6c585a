"""The generation loop of a decoder that `etdev llm` wrote, in C++."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from etdev.pte.artifact import Artifact, MethodArtifact
from etdev_cpp.interface import Method, template

# The file of a project that has the loop, and its lines in main.cpp and README.md.
FILE = "generate.h"
_INCLUDE = f'#include "{FILE}"\n'
_CALL = """  if (count > 1 && std::string(words[1]) == "--generate") {
    const fs::path folder = fs::absolute(words[0]).parent_path();
    return generate((folder / Model::kProgram).string(), {words + 2, words + count});
  }
"""
_TOLD = """
`./build/{name} --generate 1,2,3 --count 20` generates tokens. They are numbers here, since
ExecuTorch's wheel has no tokenizer that C++ could link. `--temperature`, `--top-k`, `--top-p` and
`--seed` draw those that `etdev generate` draws, and one that ends a text ends it (`--no-stop`).
"""
# The methods by which ExecuTorch's runners ask for the most tokens, the vocabulary and the ends.
LENGTH, _VOCABULARY, _ENDS = "get_max_seq_len", "get_vocab_size", "get_eos_ids"


def numbers_of(found: Any) -> dict[str, list[int]]:
    """Return what methods without inputs say, of an unpacked program: lengths and ids."""
    numbers = {}
    for method in found.program.execution_plan:
        known = [getattr(method.values[index].val, "int_val", None) for index in method.outputs]
        values = [value for value in known if value is not None]
        if not method.inputs and len(values) == len(known):
            numbers[method.name] = values
    return numbers


def parts(artifact: Artifact, numbers: dict[str, list[int]], name: str) -> dict[str, str]:
    """Return the lines of main.cpp and README.md about the loop, all empty without a decoder."""
    if not _methods(artifact, numbers):
        return dict.fromkeys(("generate_include", "generate_call", "generate_told"), "")
    told = _TOLD.format(name=name)
    return {"generate_include": _INCLUDE, "generate_call": _CALL, "generate_told": told}


def loop(
    artifact: Artifact, numbers: dict[str, list[int]], program: str, named: Sequence[Method]
) -> dict[str, str]:
    """Return the text of the loop by its file, or nothing without a decoder.

    Args:
        artifact: The program.
        numbers: Of `numbers_of`.
        program: The name of its file.
        named: Its methods with the names in model.h, those of the model for each of them.
    """
    if not (methods := _methods(artifact, numbers)):
        return {}
    known = {each.name: each for each in named}
    prefill, decode = (known[method.name] for method in methods)
    names = [name for name, _ in (*prefill.inputs, *prefill.outputs)]
    values = {
        "program": program,
        "ends": ", ".join(map(str, numbers.get(_ENDS, ()))),
        "positions": str(numbers[LENGTH][0]),
        "vocabulary": str(numbers[_VOCABULARY][0]),
        **dict(zip(("tokens", "start", "logits"), names, strict=True)),
        "prefill": prefill.stem,
        "decode": decode.stem,
    }
    return {FILE: template(FILE).substitute(values)}


def _methods(artifact: Artifact, numbers: dict[str, list[int]]) -> list[MethodArtifact]:
    """Return the methods of a prompt and of a token, if the program has them for one sequence."""
    known = {method.name: method for method in artifact.methods}
    names = ["prefill", "decode"] if "prefill" in known else ["forward", "forward"]
    found = [known[name] for name in names if name in known]
    fits = len(found) == 2 and {LENGTH, _VOCABULARY} <= numbers.keys()
    taken = [[(v.dtype, len(v.sizes)) for v in method.inputs] for method in found]
    fits = fits and taken == [[("int64", 2), ("int64", 1)]] * 2
    return found if fits and found[1].inputs[0].sizes[0] == 1 else []
