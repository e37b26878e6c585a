"""What the tests, the benchmarks and the survey import."""
