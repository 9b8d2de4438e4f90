"""Table services: they run beside writers and never block them."""
