"""The routes of the second factor, below the admin's address and before its own."""

from django.contrib import admin
from django.urls import path
from django.views.decorators.http import require_http_methods

from staff.second_factor import views
from staff.second_factor.middleware import SETUP, VERIFY

_methods = require_http_methods(["GET", "POST"])

urlpatterns = [
    path("", admin.site.admin_view(_methods(views.verify_page)), name=VERIFY),
    path("setup/", admin.site.admin_view(_methods(views.setup_page)), name=SETUP),
]
