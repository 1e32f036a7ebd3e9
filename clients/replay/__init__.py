"""``moorage replay``: files as microphones would send them, with error rates and latencies."""
