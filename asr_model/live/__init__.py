"""The live model: a streaming encoder and the reading of a growing utterance, batched over slots.

step: ``streaming_encoder`` (``stem``, ring caches) → ``speech_activity`` → ``utterance_memory`` → ``reader``
(``cached_decoder``) → words. ``slot_state`` declares everything that a slot remembers; ``offline`` is the same encoder
as one masked pass over a whole file.
"""
