"""Start, stop, restart, pause, resume, sleep and wake: requests and services; the steps are in `host/steps/`."""
