"""Entry point of the streams process."""

import os
import resource

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
django.setup(set_prefix=False)

from common.streaming_body import StreamingHandler  # noqa: E402  # needs the settings
from config.content_type import plain_asgi  # noqa: E402
from config.large_bodies import LargeBodies  # noqa: E402
from sandboxes.sockets.application import SandboxSockets  # noqa: E402

# Each open stream is an open file, and the usual soft limit is 1,024.
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

application = SandboxSockets(plain_asgi(LargeBodies(StreamingHandler())))
