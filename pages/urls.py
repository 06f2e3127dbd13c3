from django.urls import path

from pages.views import PageViewSet

page = PageViewSet.as_view
urlpatterns = [
    path("pages", page({"get": "list", "post": "create"})),
    path("pages/<slug:page>", page({"get": "retrieve", "put": "update", "delete": "destroy"})),
    path("pages/<slug:page>/deploy", page({"post": "deploy"})),
    path("pages/<slug:page>/enable", page({"post": "enable"})),
    path("pages/<slug:page>/disable", page({"post": "disable"})),
    path("pages/<slug:page>/releases", page({"get": "releases"})),
    path("pages/<slug:page>/rollback", page({"post": "rollback"})),
]
