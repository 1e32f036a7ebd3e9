"""``moorage mic``: a microphone to a service."""
