"""A request by the client for URLs of users, beside bare httpx with a client for each request and with one that keeps
its connection. CPU time of this process, in which the receiver has no part.

    PYTHONPATH=.:platform .venv/bin/python -m benchmarks.outbound [--count 500] [--rounds 5]
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx

from benchmarks.common import show
from outbound.http import Targets, post

BODY = b"x" * 600
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok"
HEADERS = {"content-type": "application/json", "webhook-id": "evt_1", "webhook-signature": "v1," + "a" * 44}


def serve() -> None:
    """Until its standard input ends: answers each request of each connection."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        print(listener.getsockname()[1], flush=True)
        threading.Thread(target=accept_all, args=(listener,), daemon=True).start()
        sys.stdin.read()


def accept_all(listener: socket.socket) -> None:
    while True:
        client, _ = listener.accept()
        threading.Thread(target=answer_all, args=(client,), daemon=True).start()


def answer_all(client: socket.socket) -> None:
    with client:
        data = b""
        while piece := client.recv(65536):
            data += piece
            if data.endswith(BODY):
                client.sendall(ANSWER)
                data = b""


@contextmanager
def receiver() -> Iterator[int]:
    command = [sys.executable, "-m", "benchmarks.outbound", "--serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdin
        yield int(process.stdout.readline())
        process.stdin.close()


def cost(count: int, request: Callable[[], int]) -> float:
    """Milliseconds of CPU for each request."""
    for _ in range(20):
        request()
    begun = time.process_time()
    for _ in range(count):
        if request() != 200:
            raise SystemExit("not answered")
    return (time.process_time() - begun) / count * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", action="store_true")
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    with receiver() as port:
        url, policy = f"http://127.0.0.1:{port}/in", Targets.of([f"127.0.0.1:{port}"])
        context = httpx.create_ssl_context()

        def by_new_client() -> int:
            with httpx.Client(trust_env=False, verify=context) as client:
                return client.post(url, content=BODY, headers=HEADERS).status_code

        ours, new, kept = [], [], []
        with httpx.Client(trust_env=False, verify=context) as client:
            for _ in range(options.rounds):
                ours.append(cost(options.count, lambda: post(url, body=BODY, headers=HEADERS, policy=policy).status))
                new.append(cost(options.count, by_new_client))
                kept.append(cost(options.count, lambda: client.post(url, content=BODY, headers=HEADERS).status_code))
    show("beside a client for each", ours, new, unit="ms", bar="at most 1: a connection for each, too")
    show("beside a kept connection", ours, kept, unit="ms", bar="none: what a connection for each costs")


if __name__ == "__main__":
    main()
