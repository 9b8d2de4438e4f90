"""The command ``mainstem``: one module per group of commands, all of them thin over ``mainstem.api``.

This package decides what to print and in which format; the API does the rest. Nothing imports it.
"""
