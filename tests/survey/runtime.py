"""A process that calls programs in executorch.runtime, and has no code of etdev.

It reads pairs of a path and the inputs of its calls from standard input, pickled, and answers each
with a pair of outputs and inputs for every call, or with the text of an error.
"""

import os
import pickle
import sys
from pathlib import Path


def main():
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # The runtime prints its log.
    os.dup2(2, 1)
    # This folder is no place to import from.
    sys.path.remove(str(Path(__file__).parent))
    import executorch.kernels.quantized  # noqa: F401
    from executorch.runtime import Runtime

    while True:
        try:
            path, calls = pickle.load(requests)
        except EOFError:
            return
        try:
            program = Runtime.get().load_program(path)
            method = program.load_method("forward")
            answer = [(list(method.execute(inputs)), inputs) for inputs in calls]
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    main()
