"""Placement by measurement.

A candidate (order of plugins, options, pins) becomes a .pte, a runner measures it on a target, and
a search goes from candidate to candidate. What wins is confirmed against the untuned plan.
"""
