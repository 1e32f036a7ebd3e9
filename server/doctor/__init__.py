"""``moorage doctor``: looks at an installation before it serves, and says what to do about what it finds."""
