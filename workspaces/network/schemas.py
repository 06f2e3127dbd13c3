"""Shapes of the network routes' responses for the OpenAPI document."""

from __future__ import annotations

from rest_framework import serializers as s

from workspaces.api.schemas import NetworkObject, PublicPort, Success


class NetworkResponse(Success):
    network = NetworkObject()


class NetworkChangedResponse(NetworkResponse):
    applied = s.BooleanField(help_text="Whether the host lets it apply already; otherwise it does so later by itself.")
    problem = s.CharField(allow_null=True, help_text="Why it does not apply yet.")


class PublicPortsResponse(Success):
    public_access = s.BooleanField(help_text="False: all are closed, whatever is listed.")
    public_ports = PublicPort(many=True)


class PublicPortResponse(PublicPortsResponse):
    public_port = PublicPort()


class WithdrawnResponse(PublicPortsResponse):
    message = s.CharField()
