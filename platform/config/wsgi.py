"""Entry point of the api process."""

import os
from importlib import import_module

from django.conf import settings
from django.core.wsgi import get_wsgi_application

from config.loading import collector_paused

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
with collector_paused():
    _django = get_wsgi_application()
    import_module(settings.ROOT_URLCONF)  # else by the first request, which waits for it

    from config.content_type import plain_wsgi
    from config.drain_request_body import DrainRequestBody
    from edge.hooks import auth_fast_path, cdn_path, certificate_path, page_rules  # registered by the apps

_fast = auth_fast_path.one(_django) or _django
_fast = page_rules.one(_fast) or _fast
_fast = cdn_path.one(_fast) or _fast
_served = DrainRequestBody(certificate_path.one(_fast) or _fast, settings.DATA_UPLOAD_MAX_MEMORY_SIZE)
application = plain_wsgi(_served)
