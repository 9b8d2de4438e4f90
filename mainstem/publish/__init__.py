"""How something becomes visible: the publisher, the fence that stops a holder who lost the lock, private
files.

Everything that the timeline shows or promises passes through ``publisher``. What is published, and whether
it may be, the callers decide; which bytes it holds, they have prepared.
"""
