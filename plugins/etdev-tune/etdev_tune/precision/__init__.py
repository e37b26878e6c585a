"""Precision as a part of placement.

A recipe gives layers schemes of torchao or of a plugin's quantiser. It is the options of the plugin
`precision`, which applies it to an exported program, without data.
"""
