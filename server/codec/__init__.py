"""Audio as clients send it in, rows of samples as the models hear it out: float32 [sequences, N] at 16 kHz.

What comes out is a function of the bytes alone, however they were cut (I7). Raw PCM and WAV are converted where they
arrive, in pieces; everything else is decoded in a process of its own. No torch here.

Axes: C channels, R rows (one per sequence), N samples.
"""
