"""Processes and threads that hold loaded models, and what runs inside them."""
