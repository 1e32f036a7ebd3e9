"""The KServe v2 protocol with Triton's extensions: requests to models that take tensors, as JSON and binary. Pure."""
