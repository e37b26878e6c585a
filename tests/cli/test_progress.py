"""Progress: stages go to stderr, results alone to stdout, and other libraries are silent."""

from __future__ import annotations

from shell import MLP, error_of, process, succeeds


def test_a_process_keeps_results_and_progress_apart(mlp_pte):
    done = process("run", mlp_pte, "--check", MLP)
    assert done.returncode == 0
    output, latency = done.stdout.splitlines()
    assert output.startswith("output 0: float32 (2, 4), max error ")
    assert latency.startswith("latency: ")
    lines = done.stderr.splitlines()
    assert lines[0] == "load PyTorch and ExecuTorch …"
    assert [line.split()[0] for line in lines if line.endswith("…")] == [
        "load", "model", "run", "check",
    ]  # fmt: skip


def test_a_process_fails_in_one_line_where_torch_logs_a_traceback(broken):
    done = process("plan", f"{broken}:badly_shaped", "--plugin", "cpu")
    assert (done.returncode, done.stdout) == (1, "")
    assert error_of(done.stderr).startswith("forward: torch.export failed: RuntimeError: ")


def test_nothing_below_python_writes_to_stdout(capfd):
    # What the command prints is captured apart from the file descriptor.
    succeeds(f"lower {MLP} --plugin cpu -o net.pte")
    succeeds("run net.pte")
    assert capfd.readouterr().out == ""
