"""Recordings: cut at pauses, read piece by piece by the final model, told as the clients of others expect it."""
