"""The service: schedulers, instances, wire protocols, gateway, metrics. ARCHITECTURE.md has the glossary and the rules."""
