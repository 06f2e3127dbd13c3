from django.urls import path

from pages.domain_views import PageDomainViewSet
from pages.views import PageViewSet, SlugViewSet

page = PageViewSet.as_view
domain = PageDomainViewSet.as_view
urlpatterns = [
    path("domain/check-slug", SlugViewSet.as_view({"post": "check"})),
    path("pages", page({"get": "list", "post": "create"})),
    path("pages/<slug:page>", page({"get": "retrieve", "put": "update", "delete": "destroy"})),
    path("pages/<slug:page>/deploy", page({"post": "deploy"})),
    path("pages/<slug:page>/enable", page({"post": "enable"})),
    path("pages/<slug:page>/disable", page({"post": "disable"})),
    path("pages/<slug:page>/releases", page({"get": "releases"})),
    path("pages/<slug:page>/rollback", page({"post": "rollback"})),
    path("pages/<slug:page>/domain", domain({"get": "retrieve", "post": "create", "delete": "destroy"})),
    path("pages/<slug:page>/domain/check", domain({"post": "check"})),
    path("pages/<slug:page>/domain/ssl/renew", domain({"post": "renew"})),
]
