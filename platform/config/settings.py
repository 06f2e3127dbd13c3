"""Django's settings. Settings that an operator may change come from `config.env`; the rest is fixed here."""

from __future__ import annotations

from pathlib import Path
from secrets import token_urlsafe

from django.core.exceptions import ImproperlyConfigured
from django.templatetags.static import static

from config.app_list import APPS, app_modules
from config.database import LOCK_SECONDS, VMHOST_THREADS, database
from config.env import load_settings
from config.log_settings import JSON_FORMATTER, LINE_FORMAT

ENV = load_settings()
ROOT = Path(__file__).resolve().parent.parent.parent
STATE = ENV.state

# A host with credentials of its own has the data key alone. Nothing that its vmhost signs or hashes is for another
# process, so that its secret key is a random one.
HAS_DATA_KEY_ALONE = ENV.role == "vmhost" and bool(ENV.data_key) and not ENV.secret_key
if not ENV.secret_key and ENV.role and not HAS_DATA_KEY_ALONE:
    raise ImproperlyConfigured("PLATFORM_SECRET_KEY is not set: no process serves with a key that everybody knows.")
SECRET_KEY = token_urlsafe(48) if HAS_DATA_KEY_ALONE else ENV.secret_key or "insecure-key-for-checks-and-builds-only"
SECRET_KEY_FALLBACKS = list(ENV.secret_key_fallbacks)
# Encrypts what hosts read. What was encrypted before there was one is read with the secret key.
DATA_KEY = ENV.data_key or SECRET_KEY
DATA_KEY_FALLBACKS = [*ENV.data_key_fallbacks, SECRET_KEY, *SECRET_KEY_FALLBACKS]
DEBUG = ENV.debug
ALLOWED_HOSTS = list(ENV.allowed_hosts)
BASE_URL = ENV.base_url.rstrip("/")
PUBLIC_URL = ENV.public_url
CSRF_TRUSTED_ORIGINS = [BASE_URL]
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
SESSION_ENGINE = "accounts.sessions"
SESSION_COOKIE_AGE = ENV.admin_session_seconds
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = BASE_URL.startswith("https://")
# No site below the same domain can set a cookie of such a name. Browsers take it over https alone.
COOKIE_PREFIX = "__Host-" if SESSION_COOKIE_SECURE else ""
SESSION_COOKIE_NAME = f"{COOKIE_PREFIX}sessionid"
CSRF_COOKIE_NAME = f"{COOKIE_PREFIX}csrftoken"
MESSAGE_STORAGE = "django.contrib.messages.storage.session.SessionStorage"

# The other processes have no pages; what they do not load is quicker to start.
ROLES_WITHOUT_ADMIN = {"worker", "hooks", "pages", "push", "media", "vmhost", "beat"}
SHOWS_ADMIN = ENV.role not in ROLES_WITHOUT_ADMIN
INSTALLED_APPS = [
    "unfold",
    "unfold.contrib.filters",
    "config.apps.AdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "config.apps.PlatformConfig",
    *APPS,
]
MIDDLEWARE = [
    "workspaces.data_plane.cors.LevelCorsMiddleware",
    "common.middleware.ApiMiddleware",
    *(["common.trace_middleware.TraceMiddleware"] if ENV.traces_endpoint else []),
    "config.middleware.SecurityHeadersMiddleware",
    "config.middleware.AdminOnlyMiddleware",
]
# Sessions, CSRF and messages serve the admin alone; API requests do not pay for them.
ADMIN_MIDDLEWARE = [
    "config.middleware.refuse_null_characters",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "accounts.session_times.move_session_end",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django_otp.middleware.OTPMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "config.page_policies.admin_policy",
    "accounts.login.answer_refused_logins",
    "staff.second_factor.middleware.second_factor_required",
]
# The admin's middleware and the security headers are there, in middleware of our own, where these checks do not look.
SILENCED_SYSTEM_CHECKS = [
    "admin.E408", "admin.E409", "admin.E410", "security.W001", "security.W002", "security.W003",
]  # fmt: skip
ROOT_URLCONF = "config.urls"
APPEND_SLASH = False
WSGI_APPLICATION = "config.wsgi.application"
ASGI_APPLICATION = "config.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
DATABASES = {
    "default": database(
        ENV.database_url,
        lock_seconds=LOCK_SECONDS.get(ENV.role),
        threads=ENV.vmhost_threads + VMHOST_THREADS if ENV.role == "vmhost" else 0,
    )
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False
STATIC_URL = "/static/"
STATIC_ROOT = STATE / "static"
# The mode of the collected static files, too, whose default is 0644.
FILE_UPLOAD_PERMISSIONS = 0o600

REDIS_URL = ENV.redis_url
# The prefix of every key and channel, those of Celery's broker included, so that instances may share one Redis.
REDIS_PREFIX = f"{ENV.control_instance}:"

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["accounts.authentication.AccountAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["accounts.permissions.ScopePermission"],
    "DEFAULT_PARSER_CLASSES": ["common.parsers.ObjectParser"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "common.negotiation.JSONAlways",
    "DEFAULT_SCHEMA_CLASS": "common.openapi.DescribedSchema",
    "EXCEPTION_HANDLER": "common.responses.drf_exception_handler",
    # OPTIONS is a method like any other: 405 if it is not offered.
    "DEFAULT_METADATA_CLASS": None,
    "UNAUTHENTICATED_USER": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Micro-VM workspaces",
    "DESCRIPTION": "Create, run and look into isolated micro-VM workspaces.",
    "VERSION": "0.1.0",
    "OAS_VERSION": "3.1.0",
    "PREPROCESSING_HOOKS": ["workspaces.runtime.openapi.leave_out_aliases"],
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "common.openapi.drop_inherited_texts",
        "common.openapi_errors.add_errors",
        "assist.openapi.describe_errors",
        "config.api_description.describe",
        "config.api_examples_reader.add_examples",
    ],
    # tests/test_registration.py: two apps never give one name to different enums.
    "ENUM_NAME_OVERRIDES": {
        name: enum for app in app_modules("openapi_settings") for name, enum in app.ENUM_NAME_OVERRIDES.items()
    },
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": [],
    "SERVE_AUTHENTICATION": [],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
}

BODY_LIMIT = ENV.body_limit_bytes
FILE_WRITE_LIMIT = ENV.file_write_limit_bytes
FILE_STREAM_LIMIT = ENV.file_stream_limit_bytes
DATA_UPLOAD_MAX_MEMORY_SIZE = ENV.body_limit_bytes

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {
        "context": {"()": "common.log_context.LogContextFilter"},
        "repeated": {"()": "common.repeated_lines.RepeatedLines"},
        "unfinished": {"()": "config.unfinished_responses.SaidOnce"},
    },
    "formatters": {
        "line": {"format": LINE_FORMAT},
        "json": JSON_FORMATTER,
    },
    "handlers": {
        "stderr": {"class": "logging.StreamHandler", "formatter": ENV.log_format, "filters": ["repeated", "context"]}
    },
    "root": {"handlers": ["stderr"], "level": ENV.log_level},
    "loggers": {
        "uvicorn.error": {"filters": ["unfinished"]},
        # asyncssh logs every channel at INFO.
        "asyncssh": {"level": "WARNING"},
        # django-eventstream logs every event stream.
        "django_eventstream": {"level": "WARNING"},
        # A line for each question to the model.
        "httpx": {"level": "WARNING"},
        # A line for each span that is dropped (common/trace_export.py has one for all of them).
        "opentelemetry": {"level": "CRITICAL"},
        # What is wrong with a form that somebody sends.
        "python_multipart": {"level": "ERROR"},
        # Whole requests and answers of the ACME client, at DEBUG.
        "acme": {"level": "WARNING"},
        # Three lines for each task, and there is one every second.
        "celery.worker.strategy": {"level": "WARNING"},
        # A task that was not wanted any more when its worker came up.
        "celery.worker.request": {"level": "WARNING"},
        # A worker may come up seconds after `make run` has printed its summary, which is to be the last.
        "celery.worker.consumer.connection": {"level": "WARNING"},
        "celery.apps.worker": {"level": "WARNING"},
        "celery.app.trace": {"level": "WARNING"},
        "celery.beat": {"level": "WARNING"},
        # A 4xx is the caller's mistake; each 5xx is logged where it is raised.
        "django.request": {"level": "CRITICAL"},
    },
}
UNFOLD = {
    "SITE_TITLE": "Workspaces",
    "SITE_HEADER": "Workspaces",
    "SHOW_VIEW_ON_SITE": False,
    "LOGIN": {"form": "accounts.login.LoginForm"},
    "ENVIRONMENT": "credits.admin.ledger_warning",
    "DASHBOARD_CALLBACK": "console.page.page_context",
    "STYLES": [lambda request: static("console/console.css")],
    "SCRIPTS": [lambda request: static("console/console.js")],
    "ACCOUNT": {
        "navigation": [{"title": "Second factor", "link": "/admin/second-factor/setup/"}]
        if ENV.admin_second_factor != "off"
        else []
    },
}
