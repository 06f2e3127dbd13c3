"""Entry point of the streams process."""

import os
import resource

import django

from config.loading import collector_paused

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
with collector_paused():
    django.setup(set_prefix=False)

    from common.streaming_body import StreamingHandler  # needs the settings
    from config.content_type import plain_asgi
    from config.large_bodies import LargeBodies
    from config.unfinished_responses import UnfinishedResponses
    from sandboxes.sockets.application import SandboxSockets
    from workspaces.data_plane.sockets.serving import MachineSockets
    from workspaces.runtime.proxy.sockets import ProxySockets
    from workspaces.runtime.sockets.application import RuntimeSockets

# Each open stream is an open file, and the usual soft limit is 1,024.
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

http = plain_asgi(LargeBodies(UnfinishedResponses(StreamingHandler())))
application = ProxySockets(MachineSockets(http, [RuntimeSockets(), SandboxSockets()]))
