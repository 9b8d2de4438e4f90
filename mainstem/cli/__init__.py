"""The command ``mainstem``: one module per group of commands, all of them thin over ``mainstem.api``.

What is printed, and in which form, is decided here; what is true is decided below. Nothing imports this room.
"""
