"""Sentiment of a text: a stateless classifier, small enough to run beside everything else."""
