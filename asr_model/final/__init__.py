"""The final model: Moonshine base as published, over whole utterances. Stateless: rows know nothing of each other."""
