"""Makes things visible: the publisher, the fence that stops a process which lost the lock, private files.

Everything that the timeline shows or promises passes through ``publisher``. The callers decide what is
published and whether it may be, and prepare its bytes beforehand.
"""
