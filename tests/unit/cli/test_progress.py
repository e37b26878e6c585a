"""What stderr shows of stages and partitions while a command works."""

from rich.console import Console

from etdev.cli.progress import Display
from etdev.schema.stopwatch import PartitionProgress


def test_a_terminal_shows_the_stage_with_its_detail_and_time():
    console = Console(width=80, force_terminal=True, no_color=True)
    stages = Display(console)
    stages("edge", "")
    stages("compile", "1/2 forward/cpu_0")
    with console.capture() as failure:
        stages.step(PartitionProgress("cpu", "forward/cpu_1", 3, "failed", 1.25))
    assert "failed forward/cpu_1, 3 nodes, 1.2 s" in failure.get()
    with console.capture() as shown:
        console.print(stages.live)
    assert "compile 1/2 forward/cpu_0 0:00:00" in shown.get()
    assert "edge" not in shown.get()


def test_elsewhere_each_stage_is_a_line_and_so_is_a_failure():
    console = Console(width=80)
    stages = Display(console)
    with console.capture() as capture:
        for _ in range(2):
            stages("compile", "1/2 forward/cpu_0")
        stages.step(PartitionProgress("cpu", "forward/cpu_0", 3, "compiled", 0.5))
        stages.step(PartitionProgress("cpu", "forward/cpu_1", 3, "failed", 0.4))
    assert capture.get().splitlines() == [
        "compile 1/2 forward/cpu_0 …",
        "failed forward/cpu_1, 3 nodes, 0.4 s …",
    ]
