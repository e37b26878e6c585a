"""Executors, in which partitions are compiled outside of this process.

parcel.py    a call of a backend as bytes, and the call again
request.py   what a worker is asked for, and how it answers
pools.py     loky's processes, Dask's client, any other executor
startup.py   how a process of etdev's own begins
dispatch.py  which task goes to the pool, and what happens to one that is lost
"""
