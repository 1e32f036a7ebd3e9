"""Finished sequences, decoded once more alone and compared: a misrouted chunk, which no error ever shows, is found."""
