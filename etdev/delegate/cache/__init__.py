"""The compile cache: results of backends, kept under a digest of everything they were given.

    canonical.py  values and programs as text, without names that mean nothing
    digests.py    weights by the digests of their bytes
    origins.py    the distribution and version that a function comes from
    key.py        the key of one call of a backend, or why it can't have one
    entry.py      the results of a call as bytes with a checksum, and back
    folder.py     entries as files
    remote.py     entries behind a URL
    cache.py      the folder and the remote together, as a lowering uses them

Entries are untrusted: they are checked before use, and nothing in them is executed here.
"""
