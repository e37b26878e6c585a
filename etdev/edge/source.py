"""The models that users give, as methods that can be exported to ATen programs."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from unittest.mock import patch

import torch
from torch import nn
from torch.export import ExportedProgram

from etdev.edge.advice import cure_of, eager_error, problem_of
from etdev.errors import SourceError, first_line, warn_or_raise
from etdev.graph.signature import stored_values
from etdev.graph.symbols import with_own_symbols
from etdev.schema.method import Method
from etdev.schema.quirk import Quirks
from etdev.schema.stages import EXPORT
from etdev.upstream.fake_tensors import FakeTensor
from etdev.upstream.tracing import without_dumps
from etdev.upstream.trees import load_exported, pytree

FORWARD = "forward"
# Layers that compute differently in training mode.
_MODAL: tuple[type[nn.Module], ...] = (
    *(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout),
    *(nn.FeatureAlphaDropout, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d),
)
# With it, torch unpickles tensors and plain containers only, whatever its callers ask for.
_SAFE = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
_SHAPE = "give a module with example inputs, an ExportedProgram, a .pt2 file, or a dict of methods"


def export(method: Method, quirks: Quirks) -> ExportedProgram:
    """Export a method to an ATen program, without gradients; the model is not changed."""
    method = quirks.apply(EXPORT, method, method.name)
    name, model, dynamic_shapes = method.name, method.model, method.dynamic_shapes
    if isinstance(model, ExportedProgram):
        if dynamic_shapes is None:
            return with_own_symbols(model)
        what = "is exported already, so dynamic_shapes has no effect"
        raise SourceError(name, what, "give them to torch.export.export")
    inputs, kwargs = method.example()
    if any(module.training and isinstance(module, _MODAL) for module in model.modules()):
        what = "dropout or batch norm is in training mode"
        warn_or_raise(SourceError(name, what, "call .eval() on the module first"), False)
    try:
        # With gradients, a method that writes a buffer would fail much later, in to_executorch.
        with torch.no_grad(), quirks.during(method) as checks, without_dumps():
            program = torch.export.export(model, inputs, kwargs, dynamic_shapes=dynamic_shapes)
    except SourceError:
        raise
    # A model that calls sys.exit would end the caller's process.
    except (Exception, SystemExit) as error:
        raise _failure(method, model, error) from error
    for check in checks:
        if doubt := check(program):
            quirks.doubts[name] = doubt
    return program


def _failure(method: Method, model: nn.Module, error: BaseException) -> SourceError:
    """Return the error about a method that can't be exported; the fault may be its inputs'."""
    if refused := eager_error(method):
        return refused
    inputs, kwargs = method.example()
    problem = problem_of(error, model, inputs, kwargs, dynamic_shapes=method.dynamic_shapes)
    return SourceError(method.name, f"torch.export failed: {problem}", cure_of(error))


def refuse_without_values(method: str, program: ExportedProgram) -> None:
    """Refuse a program that has weights without values; it can be planned, but not compiled."""
    for name, value in stored_values(program).items():
        if isinstance(value, FakeTensor) or (isinstance(value, torch.Tensor) and value.is_meta):
            cure = "make the model outside of FakeTensorMode and of the meta device"
            raise SourceError(method, f"{name} has no values", cure)


def methods_of(
    model: object,
    inputs: object = None,
    kwargs: Mapping[str, object] | None = None,
    dynamic_shapes: object = None,
) -> dict[str, Method]:
    """Make methods of a model in any of the forms that `Lowerer.plan` accepts."""
    if not isinstance(model, Mapping):
        return {FORWARD: _method(FORWARD, model, inputs, kwargs, dynamic_shapes)}
    if inputs is not None or kwargs or dynamic_shapes is not None:
        cure = 'write {"forward": (module, inputs)}'
        raise SourceError("inputs", "can't be shared by a dict of methods", cure)
    if not model:
        raise SourceError("model", "is an empty dict", _SHAPE)
    _refuse_state("model", model)
    return {str(name): _method(str(name), *_unpacked(value)) for name, value in model.items()}


def load_pt2(path: Path, trust: bool = False) -> ExportedProgram:
    """Load a file of `torch.export.save`; with `trust`, pickles in it may run code."""
    if not path.is_file():
        raise SourceError(str(path), "does not exist", "give the path of a .pt2 file")
    try:
        with patch.dict(os.environ, {} if trust else {_SAFE: "1"}):
            return load_exported(path)
    except pickle.UnpicklingError as error:
        # What it is comes after two sentences of general advice.
        reasons = (line for line in str(error).splitlines() if "GLOBAL" in line)
        what = f"holds a pickle that may run code ({next(reasons, first_line(error)).strip()})"
        cure = "if you trust who made it, give --trust, or what torch.export.load makes of it"
        raise SourceError(str(path), what, cure) from error
    except Exception as error:
        what = f"can't be loaded as a .pt2 file ({first_line(error)})"
        cure = "write it with torch.export.save, or load it in a function that imports its types"
        raise SourceError(str(path), what, cure) from error


def _unpacked(value: object) -> tuple[object, object, object, object]:
    items = value if isinstance(value, tuple) else (value,)
    if not 1 <= len(items) <= 4:
        raise SourceError("model", f"is a tuple of {len(items)}", "give (module, example inputs)")
    third = items[2] if len(items) == 3 else None
    # Keyword arguments hold tensors, and dynamic shapes don't.
    tensors = (isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(third))
    if len(items) == 4 or (isinstance(third, Mapping) and any(tensors)):
        return (*items, None)[:4]
    model, inputs, dynamic_shapes = (*items, None, None)[:3]
    return model, inputs, None, dynamic_shapes


def _refuse_state(name: str, model: object) -> None:
    """Refuse a state dict, which has the weights of a model alone."""
    if isinstance(model, Mapping) and all(isinstance(v, torch.Tensor) for v in model.values()):
        cure = "load it into the module with load_state_dict, and give that with example inputs"
        raise SourceError(name, "is a dict of tensors, such as a state dict", cure)


def _method(
    name: str, model: object, inputs: object, kwargs: object, dynamic_shapes: object
) -> Method:
    if isinstance(model, Method):
        return model
    if isinstance(model, (str, Path)):
        model = load_pt2(Path(model))
    _refuse_state(name, model)
    if not isinstance(model, (nn.Module, ExportedProgram)):
        raise SourceError(name, f"{type(model).__name__} is not a model", _SHAPE)
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise SourceError(name, f"keyword inputs are {type(kwargs).__name__}", "give a dict")
    keywords = dict(kwargs or {})
    if isinstance(inputs, Mapping):
        return Method(name, model, (), {**inputs, **keywords}, dynamic_shapes)
    if isinstance(inputs, (tuple, list)):
        return Method(name, model, tuple(inputs), keywords, dynamic_shapes)
    if inputs is None:
        return Method(name, model, () if keywords else None, keywords, dynamic_shapes)
    return Method(name, model, (inputs,), keywords, dynamic_shapes)
