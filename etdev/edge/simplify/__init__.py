"""Simplification: what computes nothing new is taken out before plugins are asked."""
