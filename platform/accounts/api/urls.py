"""`/tokens` and `/credentials`."""

from rest_framework.routers import SimpleRouter

# Registers itself; with the routes, as a process without them needs no description of them.
from accounts.api import openapi  # noqa: F401
from accounts.api.views import CredentialViewSet, TokenViewSet

router = SimpleRouter(trailing_slash=False, use_regex_path=False)
router.register("tokens", TokenViewSet, basename="token")
router.register("credentials", CredentialViewSet, basename="credential")
urlpatterns = router.urls
