"""`/tokens` and `/credentials`."""

from rest_framework.routers import SimpleRouter

from accounts.api.views import CredentialViewSet, TokenViewSet

router = SimpleRouter(trailing_slash=False, use_regex_path=False)
router.register("tokens", TokenViewSet, basename="token")
router.register("credentials", CredentialViewSet, basename="credential")
urlpatterns = router.urls
