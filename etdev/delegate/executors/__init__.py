"""Compilation of partitions in other processes."""
