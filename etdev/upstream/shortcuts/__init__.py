"""Code that only saves time or memory compared with torch's and ExecuTorch's own way.

Each shortcut has that way behind it, and gives the same bytes. It is off where the environment
variable ETDEV_PLAIN is set, and where torch or ExecuTorch lacks a private name that it needs.

    switch.py          whether a shortcut is taken
    collector.py       fewer collections of garbage
    decompositions.py  decompositions without kernels for ops that are not decomposed
    passes.py          conversion to the edge dialect without passes that change nothing
    graphs.py          graphs without their Python code
    delegates.py       shapes of delegates' results without running their programs
    leftovers.py       code and shapes that torch keeps of each lowering
"""
