"""A light streaming model with random weights: it understands nothing and shows what the service itself costs."""
