"""Models whose `.pte` bytes, errors and plans are compared before and after a change.

PYTHONPATH=tests python -m support.corpus digest before.json
PYTHONPATH=tests python -m support.corpus compare before.json after.json
"""
