"""The service: schedulers, instances, wire protocols, gateway, metrics. ARCHITECTURE.md has the words and the rules."""
