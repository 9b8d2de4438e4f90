"""What the engines share: the table that a job writes."""
