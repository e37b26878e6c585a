"""From a plan to compiled delegates, and to a program that calls them.

A node is its name here too: partitions name nodes, and split and join find them by name.
"""
