"""The active timeline: instants, their file names, and the records inside those files."""
