"""Table services: they run beside writers and stop none of them."""
