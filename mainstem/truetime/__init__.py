"""Time and exclusion: clock, table locks, the completion fence, instants and heartbeats."""
