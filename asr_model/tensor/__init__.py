"""Small models that take tensors: what the schedulers, the wires and their tests are shown on."""
