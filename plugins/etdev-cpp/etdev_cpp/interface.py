"""C++ for the methods of a .pte: their typed inputs and outputs, and calls of them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import count

from attrs import define, field, frozen

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
_ZERO = {"Int": " = 0", "Double": " = 0", "Bool": " = false", "String": ""}


@frozen
class Method:
    """A method, and the stem of its names in C++: `Forward` of ForwardInputs and ForwardOutputs."""

    facts: MethodArtifact
    stem: str


@define
class Interface:
    """The methods of a .pte as C++.

    Args:
        artifact: The .pte.
        methods: Its methods, each with a stem of its own.
    """

    artifact: Artifact
    methods: Sequence[Method] = field(init=False)

    def __attrs_post_init__(self) -> None:
        stems: dict[str, MethodArtifact] = {}
        for method in self.artifact.methods:
            for place, values in (("input", method.inputs), ("output", method.outputs)):
                for index, value in enumerate(values):
                    _check(self.artifact.path, f"{place} {index} of {method.name}", value)
            stems[_stem(method.name, stems)] = method
        self.methods = [Method(facts, stem) for stem, facts in stems.items()]

    def aliases(self) -> str:
        """Return the names of the arrays that the methods use."""
        values = [v for m in self.artifact.methods for v in (*m.inputs, *m.outputs)]
        dtypes = dict.fromkeys(value.dtype for value in values if value.kind == "Tensor")
        used = [TENSORS[dtype] for dtype in dtypes]
        lines = (
            f"using {name} = Array<{kind}, executorch::aten::ScalarType::{scalar}>;"
            for kind, scalar, name in used
        )
        return "\n".join(lines)

    def declarations(self) -> str:
        """Return the structs and the function of each method."""
        return "\n".join(line for method in self.methods for line in _declared(method))

    def loads(self) -> str:
        """Return the statements that load the methods."""
        names = [method.facts.name for method in self.methods]
        lines = (f'    check(module_.load_method("{name}"), "{name}");' for name in names)
        return "\n".join(lines)

    def runs(self) -> str:
        """Return a function for each method that reads its inputs and shows its outputs."""
        return "\n".join(line for method in self.methods for line in _run(method))

    def choices(self) -> str:
        """Return the statements that call the function of a method."""
        return "".join(
            f'  if (method == "{method.facts.name}") {{\n'
            f"    return run(model, Model::{method.stem}Inputs(), inputs, outputs);\n  }}\n"
            for method in self.methods
        )

    def described(self) -> str:
        """Return a table of the methods with their inputs and outputs, in Markdown."""
        lines = ["| method | inputs | outputs |", "|---|---|---|"]
        for method in self.artifact.methods:
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
    memory = f", in memory as {value.order}" if _is_permuted(value) else ""
    return f"{value.dtype} {'up to ' if value.dynamic else ''}{sizes}{memory}"


def _is_permuted(value: Value) -> bool:
    return list(value.order) != sorted(value.order)


def _declared(method: Method) -> Iterator[str]:
    facts = method.facts
    yield f"  struct {method.stem}Inputs {{"
    for index, value in enumerate(facts.inputs):
        yield from _field(f"input{index}", f"kInput{index}Sizes", value)
    yield "  };"
    yield f"  struct {method.stem}Outputs {{"
    for index, value in enumerate(facts.outputs):
        yield from _field(f"output{index}", "", value)
    yield "  };"
    yield f"  {method.stem}Outputs call({method.stem}Inputs& inputs) {{"
    arguments = []
    for index, value in enumerate(facts.inputs):
        own = f"input{index}"
        if value.kind == "Tensor":
            order = ", ".join(map(str, value.order))
            dynamic = str(value.dynamic).lower()
            yield f"    const auto {own} = tensor("
            sizes = f"{method.stem}Inputs::kInput{index}Sizes"
            yield f"        inputs.{own}, {sizes}, {dynamic}, {{{order}}},"
            yield f'        "input {index} of {facts.name}");'
            arguments.append(f"EValue(*{own})")
        else:
            arguments.append("EValue()" if value.kind == "Null" else f"EValue(inputs.{own})")
    if not any(value.kind != "Null" for value in facts.inputs):
        yield "    (void)inputs;"
    yield f'    const auto values = execute("{facts.name}", {{{", ".join(arguments)}}});'
    yield f"    {method.stem}Outputs outputs;"
    for index, value in enumerate(facts.outputs):
        if value.kind != "Null":
            yield f"    copy(values.at({index}), outputs.output{index});"
    yield "    return outputs;"
    yield "  }"
    yield ""


def _field(name: str, constant: str, value: Value) -> Iterator[str]:
    """Yield the member of a struct for a value, and the constant with its sizes."""
    if value.kind == "Null":
        return
    yield f"    // {_text(value)}"
    if value.kind != "Tensor":
        yield f"    {NUMBERS[value.kind]} {name}{_ZERO[value.kind]};"
        return
    if constant:
        sizes = ", ".join(map(str, value.sizes))
        kind = f"std::array<int32_t, {len(value.sizes)}>"
        yield f"    static constexpr {kind} {constant}{{{sizes}}};"
    yield f"    {TENSORS[value.dtype][2]} {name};"


def _run(method: Method) -> Iterator[str]:
    facts = method.facts
    inputs = [i for i, value in enumerate(facts.inputs) if value.kind != "Null"]
    outputs = [i for i, value in enumerate(facts.outputs) if value.kind != "Null"]
    words = "Inputs& words" if inputs else "Inputs&"
    results = "const Outputs& results" if outputs else "const Outputs&"
    yield f"void run(Model& model, Model::{method.stem}Inputs inputs, {words}, {results}) {{"
    yield from (f"  words.read(inputs.input{index});" for index in inputs)
    yield "  const auto outputs = model.call(inputs);" if outputs else "  model.call(inputs);"
    yield from (f'  results.show("output{index}", outputs.output{index});' for index in outputs)
    yield "}"
    yield ""
