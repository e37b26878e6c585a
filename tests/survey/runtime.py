"""A process that calls programs in executorch.runtime, and has no code of etdev.

It is asked with pairs of a path and the inputs of its calls, and answers each with a pair of
outputs and inputs for every call, or with the text of an error.
"""

import sys
from pathlib import Path

from processes import answering

# This folder is no place to import from.
sys.path.remove(str(Path(__file__).parent))


def answer(question):
    import executorch.kernels.quantized  # noqa: F401
    from executorch.runtime import Runtime

    path, calls = question
    try:
        method = Runtime.get().load_program(path).load_method("forward")
        return [(list(method.execute(inputs)), inputs) for inputs in calls]
    except Exception as error:
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    answering(answer)
