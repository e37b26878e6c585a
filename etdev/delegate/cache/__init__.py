"""What backends compiled, kept by the content of what they were given.

    canonical.py  the program of a partition as text, without the names that mean nothing
    faithful.py   any value as text that only equal values have
    origins.py    which version of which distribution some code is
    key.py        the key of one call of a backend, or why it can't have one
    packing.py    a call's results as an entry, and back
    entry.py      the bytes of an entry, with its checksum
    folder.py     entries as files
    remote.py     entries behind a URL
    cache.py      both together

Entries are untrusted: they are checked before use, and nothing in them is executed here.
"""
