"""Operations as rows: `queue.py` writes them, `waiting.py` waits for their outcome; `host/` carries them out."""
