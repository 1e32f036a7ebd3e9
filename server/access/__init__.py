"""Who may come in: keys, origins, certificates."""
