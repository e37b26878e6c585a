"""Progress: stages go to stderr, results alone to stdout, and other libraries are silent."""

from __future__ import annotations

from shell import MLP, error_of, process, succeeds

# Two commands in one process, as importing torch takes most of the time.
COMMANDS = """\
for line in sys.argv[1:]:
    try:
        main(line.split())
    except SystemExit as done:
        print(f"exit {done.code}", file=sys.stderr)
"""


def test_a_process_keeps_results_progress_and_errors_apart(mlp_pte, broken):
    # torch logs a traceback of what its export raises.
    fails = f"plan {broken}:badly_shaped --plugin cpu"
    done = process(fails, f"run {mlp_pte} --check {MLP}", code=COMMANDS)
    failed, ran = done.stderr.removesuffix("exit 0\n").split("exit 1\n")
    assert error_of(failed).startswith("forward: torch.export failed: RuntimeError: ")
    assert failed.startswith("load PyTorch and ExecuTorch …\n")
    stages = [line.split()[0] for line in ran.splitlines() if line.endswith("…")]
    assert stages == ["load", "model", "run", "verify"]
    output, latency, _ = done.stdout.splitlines()
    assert output.startswith("output 0: float32 (2, 4), max error ")
    assert latency.startswith("latency: ")


def test_nothing_below_python_writes_to_stdout(capfd):
    # What the command prints is captured apart from the file descriptor.
    succeeds(f"lower {MLP} --plugin cpu -o net.pte")
    succeeds("run net.pte")
    assert capfd.readouterr().out == ""
