"""The schema: the values that the stages hand to each other.

`etdev plugins` and `etdev inspect --help` never import torch, so no module in here may.
"""
