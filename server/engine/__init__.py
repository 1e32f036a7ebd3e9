"""Sequences alive: the only caller of the batchers, and what each sequence is told, in order."""
