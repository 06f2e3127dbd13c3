"""Bodies of the domain routes (wire contract, section 5)."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers as s

from certificates.selectors import SslState
from common.fields import StrictBoolean, StrictChar, StrictInteger
from common.openapi import Success
from common.serializers import BlankAsNull, ResponseSerializer, Timestamp
from domains.check import DomainCheck
from domains.models import WWW, CustomDomain
from domains.names import NameRefused, custom_name, is_of_platform
from domains.selectors import domain_url, ssl_state

SSL_STATES = [(state, state) for state in ("none", "pending", "active", "failed", "expired")]


class CustomName(StrictChar):
    """A name that may be a custom domain; becomes ASCII in lower case."""

    def to_internal_value(self, data: Any) -> str:
        try:
            return custom_name(super().to_internal_value(data))
        except NameRefused as exc:
            raise s.ValidationError(str(exc)) from exc


class CheckDomainRequest(s.Serializer[Any]):
    domain = CustomName(help_text="Internationalized names in either form.")
    include_www = StrictBoolean(required=False, help_text="Also check `www.` before it. Default false.")
    includeWww = StrictBoolean(required=False, help_text="Another spelling of `include_www`.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        other = attrs.pop("includeWww", False)
        include_www = attrs.get("include_www", other)
        if include_www and is_of_platform(f"{WWW}{attrs['domain']}"):
            raise s.ValidationError({"include_www": f"{WWW}{attrs['domain']} is a name of this platform."})
        return {**attrs, "include_www": include_www}


class ConnectDomainRequest(CheckDomainRequest):
    include_www = StrictBoolean(
        required=False, help_text="Serve `www.` before it, too, as a redirect (308) to the domain. Default false."
    )


class ConnectPortDomainRequest(ConnectDomainRequest):
    port = StrictInteger(min_value=1, max_value=65535, help_text="A public port of the workspace.")


class CnameObject(ResponseSerializer):
    expected = s.CharField(help_text="The edge's name.")
    actual = s.CharField(
        allow_null=True, help_text="The name or addresses that the name leads to; null if there are none."
    )
    ok = s.BooleanField()


class OwnershipObject(ResponseSerializer):
    host = s.CharField(help_text="The name of the TXT record.")
    expected = s.CharField(help_text="Its value.")
    found = s.CharField(allow_null=True, source="actual")
    ok = s.BooleanField()


class DomainCheckResponse(Success):
    domain = s.CharField()
    verified = s.BooleanField(help_text="Whether the domain can be connected now.")
    cname = CnameObject()
    ownership = OwnershipObject()
    errors = s.ListField(  # type: ignore[assignment]
        child=s.CharField(), help_text="What is missing, one sentence for each problem."
    )


class SslObject(ResponseSerializer):
    status = s.ChoiceField(SSL_STATES)
    expiresAt = Timestamp(allow_null=True, source="expires_at")
    error = BlankAsNull(help_text="Why there is no certificate yet, or no newer one.")


class ConnectedDomainResponse(Success):
    domain = s.CharField()
    domain_ascii = s.CharField(help_text="The name as it is in the DNS.")
    ssl = SslObject()
    url = s.CharField(help_text="Where it is served now: plain HTTP until there is a certificate.")


class RenewedCertificateResponse(Success):
    domain = s.CharField()
    domain_ascii = s.CharField()
    ssl = SslObject()


class DomainObject(ResponseSerializer):
    domain = s.CharField(source="shown_name")
    domain_ascii = s.CharField(source="name")
    include_www = s.BooleanField()
    port = s.IntegerField(required=False, help_text="For a workspace's domain: the port that it leads to.")
    verified = s.BooleanField(
        help_text="False: the claim has no TXT record, and a proven claim can take the domain from it."
    )
    ssl = SslObject()
    url = s.CharField()

    def read_verified(self, row: CustomDomain) -> bool:
        return row.proven_at is not None

    def read_ssl(self, row: CustomDomain) -> SslState:
        return ssl_state(row)

    def read_url(self, row: CustomDomain) -> str:
        return domain_url(row, ssl_state(row))


class DomainResponse(Success):
    domain = DomainObject(allow_null=True)


def check_body(found: DomainCheck) -> dict[str, Any]:
    """Return the part of a check that an error shows."""
    body = dict(DomainCheckResponse(found).data)
    return {name: value for name, value in body.items() if name != "success"}


def connected_fields(row: CustomDomain) -> dict[str, Any]:
    """Return the fields of ConnectedDomainResponse."""
    ssl = ssl_state(row)
    return {"domain": row.shown_name, "domain_ascii": row.name, "ssl": ssl, "url": domain_url(row, ssl)}
