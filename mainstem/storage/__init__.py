"""Storage seam: the only way that the rest of the package touches files."""
