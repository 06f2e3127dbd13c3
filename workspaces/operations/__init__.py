"""Long steps on machines: queued as rows, rung for by Celery, carried out by the host's vmhost.

`queue.py` makes and settles rows; `waiting.py` waits for their end; `engine.py` claims and runs them in vmhost;
`create.py power.py delete.py` are the steps; `hostside.py` is what one vmhost process holds.
"""
