"""Entry point of the api process."""

import os

from django.conf import settings
from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
_django = get_wsgi_application()

from config.content_type import plain_wsgi  # noqa: E402
from config.drain_request_body import DrainRequestBody  # noqa: E402  # for the order of imports
from edge.hooks import auth_fast_path, cdn_path, certificate_path, page_rules  # noqa: E402  # registered by the apps

_fast = auth_fast_path.one(_django) or _django
_fast = page_rules.one(_fast) or _fast
_fast = cdn_path.one(_fast) or _fast
_served = DrainRequestBody(certificate_path.one(_fast) or _fast, settings.DATA_UPLOAD_MAX_MEMORY_SIZE)
application = plain_wsgi(_served)
