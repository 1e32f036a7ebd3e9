"""What clients of others send with a recording, and what they expect back: Deepgram's and OpenAI's. Sans IO."""
