"""Models: what they compute and what they remember. Imports nothing of ``server``.

Axes in shapes: B rows of a batch · S slots · N samples (16 kHz, float32 in [-1, 1]) · T encoder frames (24 ms, 384
samples) · L token positions · D features (416) · H attention heads (8) · E features of a head (52) · V vocabulary.
"""
