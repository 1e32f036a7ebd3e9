"""Clients of the service: file replay, latency figures, in-process transcription."""
