"""``moorage bench``: what the service holds, beside what its models hold without it."""
