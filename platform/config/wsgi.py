"""Entry point of the api process."""

import os

from django.conf import settings
from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
_django = get_wsgi_application()

from config.drain_request_body import DrainRequestBody  # noqa: E402  # for the order of imports
from workspaces.edge_auth.fast_path import Door  # noqa: E402

application = DrainRequestBody(Door(_django), settings.DATA_UPLOAD_MAX_MEMORY_SIZE)
