"""``moorage transcribe``: files to text or subtitles, with the engine in this process."""
