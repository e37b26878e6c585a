"""`python -m etdev` is `etdev`."""

from etdev.cli.main import main

main(prog_name="etdev")
