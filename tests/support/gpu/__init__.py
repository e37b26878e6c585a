"""The tests that need a GPU, each in a process of an environment with the runtime that it needs."""
