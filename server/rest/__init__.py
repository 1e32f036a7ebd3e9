"""Requests with a body, on the service's port: recordings, and the models of the KServe protocol."""
