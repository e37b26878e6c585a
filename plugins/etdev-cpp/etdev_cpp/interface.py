"""C++ for the methods of a .pte: their typed inputs and outputs, and calls of them."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib.resources import files
from itertools import count
from string import Template

from attrs import frozen

from etdev import Plan
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
# Words that name no member: keywords, and macros of the headers that model.h includes.
_RESERVED = re.compile(
    r"alignas|alignof|and|and_eq|asm|assert|auto|bitand|bitor|bool|break|case|catch|char|"
    r"char16_t|char32_t|class|compl|const|const_cast|constexpr|continue|decltype|default|"
    r"delete|do|double|dynamic_cast|else|enum|errno|explicit|export|extern|false|float|for|"
    r"friend|goto|if|inline|int|long|mutable|namespace|new|noexcept|not|not_eq|nullptr|"
    r"operator|or|or_eq|private|protected|public|register|reinterpret_cast|return|short|"
    r"signed|sizeof|static|static_assert|static_cast|stderr|stdin|stdout|struct|switch|"
    r"template|this|thread_local|throw|true|try|typedef|typeid|typename|union|unsigned|"
    r"using|virtual|void|volatile|wchar_t|while|xor|xor_eq"
)


@frozen
class Method:
    """A method with the identifiers that it has in C++.

    Args:
        stem: The beginning of the names of its types: `ReadCache` for `read_cache`.
        inputs: Each input by its identifier, in order.
        outputs: Each output by its identifier, in order.
        limit: What a call may have exceeded that fails; empty without state.
    """

    artifact: MethodArtifact
    stem: str
    inputs: tuple[tuple[str, Value], ...]
    outputs: tuple[tuple[str, Value], ...]
    limit: str

    @property
    def name(self) -> str:
        return self.artifact.name


def methods_of(artifact: Artifact, plan: Plan | None = None, length: int = 0) -> list[Method]:
    """Return the methods of a .pte with the names of their values, which are in its plan.

    Args:
        artifact: The .pte.
        plan: Its plan; None names values by their numbers.
        length: The most tokens that it takes; 0 if it doesn't say.

    Raises:
        RunError: An input or an output has no type in C++.
    """
    known = {method.method: method.interface for method in plan.methods} if plan else {}
    found: list[Method] = []
    for method in artifact.methods:
        own = known.get(method.name)
        inputs = _named("input", method.inputs, own.inputs if own else ())
        outputs = _named("output", method.outputs, own.outputs if own else ())
        for name, value in (*inputs, *outputs):
            _check(artifact.path, f"{name} of {method.name}", value)
        stem = _stem(method.name, {other.stem for other in found})
        limit = _limit(own.state, length) if own and own.state else ""
        found.append(Method(method, stem, inputs, outputs, limit))
    return found


def rendered(artifact: Artifact, methods: Sequence[Method]) -> dict[str, str]:
    """Return the C++ of all methods, by the names that templates have for it."""
    parts = [_parts(method) for method in methods]
    loads = (f'    check(module_.load_method("{each.name}"), "{each.name}");' for each in methods)
    return {
        "aliases": _aliases(artifact),
        "loads": "\n".join(loads),
        "methods": "\n".join(map(template("method.h").substitute, parts)),
        "runs": "\n".join(map(template("run.cpp").substitute, parts)),
        "choices": "".join(map(template("choice.cpp").substitute, parts)),
        "interface": _described(methods),
    }


def _named(
    kind: str, values: Sequence[Value], names: Sequence[str]
) -> tuple[tuple[str, Value], ...]:
    """Return values by their names in the model as C++ writes them, else by their numbers."""
    if len(names) != len(values):
        names = [f"{kind}{index}" for index in range(len(values))]
    found: dict[str, Value] = {}
    for name, value in zip(names, values, strict=True):
        own = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")
        own = own if own[:1].isalpha() else f"{kind}{own}"
        while _RESERVED.fullmatch(own) or own in found:
            own += "_"
        found[own] = value
    return tuple(found.items())


def _limit(state: Mapping[str, tuple[int, ...]], length: int) -> str:
    """Return the sizes of the state, which a call may have exceeded that fails."""
    groups: dict[tuple[int, ...], list[str]] = {}
    for name, sizes in state.items():
        groups.setdefault(sizes, []).append(name)
    texts = [
        f"{names[0]}{f' and {len(names) - 1} more' * (len(names) > 1)} of {_product(sizes)}"
        for sizes, names in groups.items()
    ]
    most = f"it takes {length} tokens, and " if length else ""
    return f"an input is out of range, or its state is full: {most}it has {', '.join(texts)}"


def template(name: str) -> Template:
    """Return the template of a part that is repeated for each method."""
    return Template((files(__package__) / "templates" / f"{name}.part").read_text("utf-8"))


def _parts(method: Method) -> dict[str, str]:
    """Return the names and the lines of a method that its templates have."""
    inputs = [(name, value) for name, value in method.inputs if value.kind != "Null"]
    outputs = [(i, *pair) for i, pair in enumerate(method.outputs) if pair[1].kind != "Null"]
    tensors = [(name, value) for name, value in inputs if value.kind == "Tensor"]
    constants = _constants(name for name, _ in tensors)
    lines = {
        "inputs": (_member(name, value) for name, value in inputs),
        "sizes": (_sizes(constants[name], value) for name, value in tensors),
        "outputs": (_member(name, value) for _, name, value in outputs),
        "tensors": (
            _tensor(name, f"{method.stem}Inputs::{constants[name]}", value, method.name)
            for name, value in tensors
        ),
        "copies": (f"    copy(values.at({i}), outputs.{name});\n" for i, name, _ in outputs),
        "reads": (f"  words.read(inputs.{name});\n" for name, _ in inputs),
        "shows": (f'  results.show("{name}", outputs.{name});\n' for _, name, _ in outputs),
    }
    arguments = ", ".join(_argument(name, value) for name, value in method.inputs)
    texts = {name: "".join(own) for name, own in lines.items()}
    limit = json.dumps(method.limit)
    return {
        **{"stem": method.stem, "name": method.name, "arguments": arguments, "limit": limit},
        **texts,
    }


def _constants(names: Iterable[str]) -> dict[str, str]:
    """Return the name of the constant with the sizes of each input."""
    found: dict[str, str] = {}
    for name in names:
        found[name] = _stem(f"k_{name}_sizes", found.values(), first="k")
    return found


def _member(name: str, value: Value) -> str:
    """Return the member of a struct for a value, which begins empty or as 0."""
    kind = TENSORS[value.dtype][2] if value.kind == "Tensor" else NUMBERS[value.kind]
    return f"    // {_text(value)}\n    {kind} {name}{{}};\n"


def _sizes(name: str, value: Value) -> str:
    """Return the constant with the sizes of an input."""
    sizes, rank = ", ".join(map(str, value.sizes)), len(value.sizes)
    return f"    static constexpr std::array<int32_t, {rank}> {name}{{{sizes}}};\n"


def _tensor(name: str, sizes: str, value: Value, method: str) -> str:
    """Return the statement that makes a tensor of an input."""
    order, dynamic = ", ".join(map(str, value.order)), str(value.dynamic).lower()
    return (
        f"    const auto {name}_tensor = tensor(\n"
        f"        inputs.{name}, {sizes}, {dynamic}, {{{order}}},\n"
        f'        "{name} of {method}");\n'
    )


def _argument(name: str, value: Value) -> str:
    arguments = {"Null": "EValue()", "Tensor": f"EValue(*{name}_tensor)"}
    return arguments.get(value.kind, f"EValue(inputs.{name})")


def _aliases(artifact: Artifact) -> str:
    """Return the names of the arrays that the methods use."""
    values = [v for m in artifact.methods for v in (*m.inputs, *m.outputs)]
    dtypes = dict.fromkeys(value.dtype for value in values if value.kind == "Tensor")
    lines = (
        f"using {name} = Array<{kind}, executorch::aten::ScalarType::{scalar}>;"
        for kind, scalar, name in map(TENSORS.__getitem__, dtypes)
    )
    return "\n".join(lines)


def _described(methods: Iterable[Method]) -> str:
    """Return a table of the methods with their inputs and outputs, in Markdown."""
    lines = ["| method | inputs | outputs |", "|---|---|---|"]
    for method in methods:
        inputs, outputs = (
            ", ".join(f"`{name}` {_text(value)}" for name, value in values) or "none"
            for values in (method.inputs, method.outputs)
        )
        lines.append(f"| `{method.name}` | {inputs} | {outputs} |")
    return "\n".join(lines)


def _stem(name: str, taken: Collection[str], first: str = "") -> str:
    """Return an identifier that is not taken: `ReadCache` for `read_cache`."""
    parts = re.findall(r"[A-Za-z0-9]+", name.removeprefix(first))
    base = first + "".join(part[0].upper() + part[1:] for part in parts)
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
    sizes = _product(value.sizes)
    memory = "" if list(value.order) == sorted(value.order) else f", in memory as {value.order}"
    return f"{value.dtype} {'up to ' if value.dynamic else ''}{sizes}{memory}"


def _product(sizes: Iterable[int]) -> str:
    return " x ".join(map(str, sizes)) or "one number"
