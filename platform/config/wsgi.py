"""Entry point of the api process."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
_django = get_wsgi_application()

from workspaces.network.door import Door  # noqa: E402  # needs the apps

application = Door(_django)
