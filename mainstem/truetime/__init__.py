"""Time and exclusion: the clock, instant times, heartbeats, and the seams that hand them to protocol code.

``truetime/locks`` holds the table locks. Nothing here knows what an instant means or what is published.
"""
