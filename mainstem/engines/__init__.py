"""What the engines share: options as their users give them, and the table that a job writes."""
