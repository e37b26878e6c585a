"""What a terminal shows of stages and partitions while a command works."""

from rich.console import Console

from etdev.cli.progress import Lines, LiveStages
from etdev.schema.stages import Step


def shown(stages):
    console = Console(width=80)
    with console.capture() as capture:
        console.print(stages)
    return capture.get()


def test_it_shows_partitions_with_their_states_and_stages_with_their_times():
    stages = LiveStages(Console(width=80))
    stages("edge", "")
    stages("compile", "")
    for number in range(4):
        stages.step(Step("cpu", f"forward/cpu_{number}", 3, "waiting"))
    stages.step(Step("cpu", "forward/cpu_0", 3, "hit", 0.01))
    stages.step(Step("cpu", "forward/cpu_1", 3, "compiling"))
    with stages.console.capture() as failure:
        stages.step(Step("cpu", "forward/cpu_1", 3, "failed", 1.25))
    stages.step(Step("cpu", "forward/cpu_2", 3, "compiling"))
    text = shown(stages)
    assert "✓ edge 0.0 s" in text
    assert "compile 1 compiling, 1 failed, 1 hit, 1 waiting, 0.0 s" in text
    assert failure.get() == "failed forward/cpu_1, 3 nodes, 1.2 s\n"
    assert "compiling forward/cpu_2, 3 nodes, 0.0 s" in text
    assert "cpu_1" not in text
    assert "cpu_3" not in text


def test_a_stage_after_compiling_shows_no_partitions():
    stages = LiveStages(Console(width=80))
    stages("compile", "")
    stages.step(Step("cpu", "forward/cpu_0", 3, "compiling"))
    stages("emit", "")
    assert "cpu_0" not in shown(stages)
    assert "emit" in shown(stages)


def test_elsewhere_each_stage_is_a_line_and_so_is_a_failure():
    console = Console(width=80)
    lines = Lines(console)
    with console.capture() as capture:
        for _ in range(2):
            lines("compile", "1/2 forward/cpu_0")
        lines.step(Step("cpu", "forward/cpu_0", 3, "compiled", 0.5))
        lines.step(Step("cpu", "forward/cpu_1", 3, "failed", 0.4))
    assert capture.get().splitlines() == [
        "compile 1/2 forward/cpu_0 …",
        "failed forward/cpu_1, 3 nodes, 0.4 s …",
    ]
