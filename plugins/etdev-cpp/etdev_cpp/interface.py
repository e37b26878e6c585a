"""C++ for the methods of a .pte: their typed inputs and outputs, and calls of them."""

from __future__ import annotations

import re
from collections.abc import Collection
from importlib.resources import files
from itertools import count
from string import Template

from etdev.errors import RunError
from etdev.pte.artifact import Artifact, MethodArtifact, Value

# C++ types of tensors by dtype, with the ScalarType and the name of the array.
TENSORS = {
    "uint8": ("uint8_t", "Byte", "Bytes"),
    "int8": ("int8_t", "Char", "Int8s"),
    "int16": ("int16_t", "Short", "Int16s"),
    "int32": ("int32_t", "Int", "Int32s"),
    "int64": ("int64_t", "Long", "Int64s"),
    "uint16": ("uint16_t", "UInt16", "UInt16s"),
    "uint32": ("uint32_t", "UInt32", "UInt32s"),
    "uint64": ("uint64_t", "UInt64", "UInt64s"),
    "float16": ("executorch::aten::Half", "Half", "Halves"),
    "bfloat16": ("executorch::aten::BFloat16", "BFloat16", "BFloats"),
    "float32": ("float", "Float", "Floats"),
    "float64": ("double", "Double", "Doubles"),
    # The values of std::vector<bool> have no addresses.
    "bool": ("uint8_t", "Bool", "Bools"),
}
NUMBERS = {"Int": "int64_t", "Double": "double", "Bool": "bool", "String": "std::string"}


def rendered(artifact: Artifact) -> dict[str, str]:
    """Return the C++ of all methods, by the names that templates have for it.

    Raises:
        RunError: An input or an output has no type here.
    """
    methods: dict[str, MethodArtifact] = {}
    for method in artifact.methods:
        for place, values in (("input", method.inputs), ("output", method.outputs)):
            for index, value in enumerate(values):
                _check(artifact.path, f"{place} {index} of {method.name}", value)
        methods[_stem(method.name, methods)] = method
    parts = [_parts(stem, method) for stem, method in methods.items()]
    names = (method.name for method in artifact.methods)
    loads = (f'    check(module_.load_method("{name}"), "{name}");' for name in names)
    return {
        "aliases": _aliases(artifact),
        "loads": "\n".join(loads),
        "methods": "\n".join(map(_template("method.h").substitute, parts)),
        "runs": "\n".join(map(_template("run.cpp").substitute, parts)),
        "choices": "".join(map(_template("choice.cpp").substitute, parts)),
        "interface": _described(artifact),
    }


def _template(name: str) -> Template:
    """Return the template of a part that is repeated for each method."""
    return Template((files(__package__) / "templates" / f"{name}.part").read_text("utf-8"))


def _parts(stem: str, method: MethodArtifact) -> dict[str, str]:
    """Return the names and the lines of a method that its templates have."""
    inputs = [(i, value) for i, value in enumerate(method.inputs) if value.kind != "Null"]
    outputs = [(i, value) for i, value in enumerate(method.outputs) if value.kind != "Null"]
    lines = {
        "inputs": (f"{_sizes(i, v)}{_member(f'input{i}', v)}" for i, v in inputs),
        "outputs": (_member(f"output{i}", v) for i, v in outputs),
        "tensors": (_tensor(i, v, stem, method.name) for i, v in inputs if v.kind == "Tensor"),
        "copies": (f"    copy(values.at({i}), outputs.output{i});\n" for i, _ in outputs),
        "reads": (f"  words.read(inputs.input{i});\n" for i, _ in inputs),
        "shows": (f'  results.show("output{i}", outputs.output{i});\n' for i, _ in outputs),
    }
    arguments = ", ".join(_argument(i, value) for i, value in enumerate(method.inputs))
    texts = {name: "".join(own) for name, own in lines.items()}
    return {"stem": stem, "name": method.name, "arguments": arguments, **texts}


def _member(name: str, value: Value) -> str:
    """Return the member of a struct for a value, which begins empty or as 0."""
    kind = TENSORS[value.dtype][2] if value.kind == "Tensor" else NUMBERS[value.kind]
    return f"    // {_text(value)}\n    {kind} {name}{{}};\n"


def _sizes(index: int, value: Value) -> str:
    """Return the constant with the sizes of an input, if it is a tensor."""
    if value.kind != "Tensor":
        return ""
    sizes, rank = ", ".join(map(str, value.sizes)), len(value.sizes)
    name = f"kInput{index}Sizes"
    return f"    static constexpr std::array<int32_t, {rank}> {name}{{{sizes}}};\n"


def _tensor(index: int, value: Value, stem: str, method: str) -> str:
    """Return the statement that makes a tensor of an input."""
    order, dynamic = ", ".join(map(str, value.order)), str(value.dynamic).lower()
    return (
        f"    const auto input{index} = tensor(\n"
        f"        inputs.input{index}, {stem}Inputs::kInput{index}Sizes, {dynamic}, {{{order}}},\n"
        f'        "input {index} of {method}");\n'
    )


def _argument(index: int, value: Value) -> str:
    arguments = {"Null": "EValue()", "Tensor": f"EValue(*input{index})"}
    return arguments.get(value.kind, f"EValue(inputs.input{index})")


def _aliases(artifact: Artifact) -> str:
    """Return the names of the arrays that the methods use."""
    values = [v for m in artifact.methods for v in (*m.inputs, *m.outputs)]
    dtypes = dict.fromkeys(value.dtype for value in values if value.kind == "Tensor")
    lines = (
        f"using {name} = Array<{kind}, executorch::aten::ScalarType::{scalar}>;"
        for kind, scalar, name in map(TENSORS.__getitem__, dtypes)
    )
    return "\n".join(lines)


def _described(artifact: Artifact) -> str:
    """Return a table of the methods with their inputs and outputs, in Markdown."""
    lines = ["| method | inputs | outputs |", "|---|---|---|"]
    for method in artifact.methods:
        inputs = ", ".join(map(_text, method.inputs)) or "none"
        outputs = ", ".join(map(_text, method.outputs)) or "none"
        lines.append(f"| `{method.name}` | {inputs} | {outputs} |")
    return "\n".join(lines)


def _stem(name: str, taken: Collection[str]) -> str:
    """Return an identifier for a method that is not taken: `ReadCache` for `read_cache`."""
    parts = re.findall(r"[A-Za-z0-9]+", name)
    base = "".join(part[0].upper() + part[1:] for part in parts)
    base = base if base[:1].isalpha() else f"Method{base}"
    numbered = (f"{base}{number or ''}" for number in count())
    return next(stem for stem in numbered if stem not in taken)


def _check(path: str, place: str, value: Value) -> None:
    """Refuse a value that has no type here."""
    known = value.dtype in TENSORS if value.kind == "Tensor" else value.kind in (*NUMBERS, "Null")
    if not known:
        what = f"{place} is {value.dtype or value.kind}, which has no type in C++ here"
        raise RunError(path, what, "give the model another interface")


def _text(value: Value) -> str:
    """Describe a value."""
    if value.kind != "Tensor":
        return value.kind.lower()
    sizes = " x ".join(map(str, value.sizes)) or "one number"
    memory = "" if list(value.order) == sorted(value.order) else f", in memory as {value.order}"
    return f"{value.dtype} {'up to ' if value.dynamic else ''}{sizes}{memory}"
