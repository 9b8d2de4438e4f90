"""The active timeline: instants, their files and their one way of being published."""
