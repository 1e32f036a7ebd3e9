"""Moonshine base, English (Moonshine AI, MIT): its weights, its layers, its tokenizer.

Layers leave attention to the caller, who knows what a position may see: the final model attends to whole utterances,
the live model to the caches of its slots.
"""
