"""The generation loop of a decoder that `etdev llm` wrote, in C++."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from etdev.pte.artifact import Artifact, MethodArtifact, Value
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
`./build/{name} --generate {given} --count 20` generates tokens{hears}. They are numbers here, since
ExecuTorch's wheel has no tokenizer that C++ could link. `--temperature`, `--top-k`, `--top-p` and
`--seed` draw those that `etdev generate` draws, and one that ends a text ends it (`--no-stop`).
"""
_HEARS = " of {source}, and `--tokens 1,2` begins their text"
_NEEDED = '    if (given.empty()) throw std::invalid_argument("no source");\n'
_OPTION = '      else if (name == "--tokens") known = ids_of(words.at(++i));\n'
# The methods by which ExecuTorch's runners ask for the most tokens, the vocabulary and the ends.
LENGTH, _VOCABULARY, _ENDS = "get_max_seq_len", "get_vocab_size", "get_eos_ids"
_FIRST = "get_bos_id"


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
    if not (methods := _methods(artifact, numbers)):
        return dict.fromkeys(("generate_include", "generate_call", "generate_told"), "")
    given, hears = "1,2,3", ""
    for encode in methods[2:]:
        (source,) = encode.inputs
        of_tokens = source.dtype == "int64"
        given = "3,1,4" if of_tokens else "sound.bin"
        what = "source tokens" if of_tokens else f"raw features in a file, {_described(source)}"
        hears = _HEARS.format(source=what)
    told = _TOLD.format(name=name, given=given, hears=hears)
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
    prefill, decode, *encode = (known[method.name] for method in methods)
    (tokens, _), (start, _), *_ = prefill.inputs
    ((logits, _),) = prefill.outputs
    values = {
        "program": program,
        "ends": ", ".join(map(str, numbers.get(_ENDS, ()))),
        "positions": str(numbers[LENGTH][0]),
        "vocabulary": str(numbers[_VOCABULARY][0]),
        **{"tokens": tokens, "start": start, "logits": logits},
        "decode": decode.stem,
        **_prompt(prefill, encode, numbers),
    }
    return {FILE: template(FILE).substitute(values)}


def _prompt(
    prefill: Method, encoders: Sequence[Method], numbers: dict[str, list[int]]
) -> dict[str, str]:
    """Return what the loop is given: a prompt, or a source that an encoder-decoder hears."""
    values = {"usage": "TOKENS", "read": "    known = ids_of(given);\n", "first": "", "option": ""}
    values |= {"hear": "", "inputs": f"Model::{prefill.stem}Inputs{{}}"}
    for encode in encoders:
        ((source, value),), ((encoded, _),) = encode.inputs, encode.outputs
        hear = template("hear.h").substitute(
            sizes=", ".join(map(str, value.sizes)),
            count=math.prod(value.sizes),
            described=_described(value),
            prefill=prefill.stem,
            encode=encode.stem,
            source=source,
            encoded=encoded,
            states=prefill.inputs[2][0],
        )
        values |= {"usage": "SOURCE [--tokens TOKENS]", "option": _OPTION, "hear": hear}
        values |= {"read": _NEEDED, "first": ", ".join(map(str, numbers.get(_FIRST, ())))}
        values["inputs"] = "hear(model, given)"
    return values


def _described(value: Value) -> str:
    return f"{value.dtype} {' x '.join(map(str, value.sizes))}"


def _methods(artifact: Artifact, numbers: dict[str, list[int]]) -> list[MethodArtifact]:
    """Return the methods of a prompt and of a token, if the program has them for one sequence.

    An encoder-decoder has the one of its source, too, whose states are an input of the prompt.
    """
    known = {method.name: method for method in artifact.methods}
    names = ["prefill", "decode"] if "prefill" in known else ["forward", "forward"]
    names += ["encode"] * ("encode" in known)
    found = [known[name] for name in names if name in known]
    if len(found) < 2 or not {LENGTH, _VOCABULARY} <= numbers.keys():
        return []
    taken = [[(v.dtype, len(v.sizes)) for v in method.inputs] for method in found]
    call = [("int64", 2), ("int64", 1)]
    heard = [(v.dtype, len(v.sizes)) for method in found[2:] for v in method.outputs]
    fits = taken[0] == [*call, *heard] and taken[1] == call
    return found if fits and found[1].inputs[0].sizes[0] == 1 else []
