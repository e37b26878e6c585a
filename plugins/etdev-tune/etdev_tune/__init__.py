"""Placement by measurement.

A candidate (claim order, options, pins) becomes a .pte, which a runner measures on a target, and a
search goes from candidate to candidate. The winner is confirmed against the untuned plan.
"""
