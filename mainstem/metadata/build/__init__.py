"""What the rows of every metadata partition must be, computed from the data by columns."""
