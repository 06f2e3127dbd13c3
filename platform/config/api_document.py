"""`GET /openapi.json`: made once by each process, as anybody may ask for it, and it takes half a second of CPU."""

from __future__ import annotations

from functools import lru_cache
from threading import Lock

from django.http import HttpRequest, HttpResponse
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer

from common.errors import MethodNotAllowed

# Several at once would each make it; the library's own registries are not made for threads either.
_making = Lock()


def api_document(request: HttpRequest) -> HttpResponse:
    """Return the description of all documented routes. The query has no effect."""
    if request.method not in ("GET", "HEAD"):
        raise MethodNotAllowed(headers={"Allow": "GET, HEAD"})
    with _making:
        content = _document()
    return HttpResponse(content, content_type=OpenApiJsonRenderer.media_type)


@lru_cache(maxsize=1)
def _document() -> bytes:
    document = SchemaGenerator().get_schema(request=None, public=True)
    return bytes(OpenApiJsonRenderer().render(document, renderer_context={}))
