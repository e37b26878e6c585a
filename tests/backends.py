"""A fake backend for what cannot run here: it compiles everything to a word."""

from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult


class FakeAccelerator(BackendDetails):
    """Stands in for a backend with a compiler we don't have; its delegates can't be run."""

    @staticmethod
    def preprocess(edge_program, compile_specs):
        return PreprocessResult(processed_bytes=b"fake")
