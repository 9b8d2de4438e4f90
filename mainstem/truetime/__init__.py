"""Time and mutual exclusion: the clock, instant times, heartbeats, and the seams that inject them.

``truetime/locks`` holds the table locks. Nothing here knows what an instant means or what is published.
"""
