"""Small speech files for tests, the data that says what they are (`clips.py`) and the script that makes them."""
