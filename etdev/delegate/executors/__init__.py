"""Compilation of partitions in other processes.

parcel.py     a call of a backend as bytes, and the call again
request.py    the request to a worker, and the worker's reply
processes.py  worker processes of etdev's own
dispatch.py   which task goes to a worker, and what happens when a worker is lost
"""
