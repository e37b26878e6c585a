"""Executors: where partitions are compiled when it isn't here and one after the other.

    plain.py        values as JSON, and back
    arrangement.py  how a graph's nodes are named, ordered and called
    storages.py     a program's tensors, apart from it
    recipe.py       how a worker makes a plugin again
    travel.py       a call of a backend as bytes, and back
    work.py         what a worker does
    processes.py    workers of this machine, started afresh
    lanes.py        the executors that there are: our processes, Dask, any other
    orders.py       a task, made ready to travel
    pace.py         what calls take in this process
    worth.py        whether a worker would be done with a call before this process is
    crew.py         who compiles what, and what happens if a worker is lost or freezes
    retry.py        what was lost, given to a fresh process

Only bytes and text go to a worker and come back: programs as ExecuTorch saves them, results as
entries of the cache.
"""
