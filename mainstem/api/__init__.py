"""What users call: ``open_table``, ``create_table`` and ``Table`` with its facets, and the table of an
engine's job.

This is the composition root: only here a store, a clock, a lock and randomness are made and put together. No
protocol lives here; a method checks its arguments and hands them to the room that does the work.
"""
