"""Shapes of the metrics routes' responses for the OpenAPI document."""

from __future__ import annotations

from rest_framework import serializers

from common.openapi import Success
from workspaces.schemas import Failure, ResourcesObject
from workspaces.states import Status


class StatsObject(serializers.Serializer):
    cpuUsage = serializers.FloatField(help_text="Percent of the CPUs that it has.")
    memoryUsage = serializers.FloatField(help_text="Percent of the memory that it has.")
    memoryUsedMB = serializers.FloatField()
    memoryTotalMB = serializers.FloatField()
    guestMemoryUsed = serializers.IntegerField(help_text="Bytes, as the guest says.")
    guestMemoryTotal = serializers.IntegerField(help_text="Bytes, as the guest says.")
    guestDiskUsed = serializers.IntegerField(help_text="Bytes of the writable disk, as the guest says.")
    guestDiskTotal = serializers.IntegerField(help_text="Bytes of the writable disk, as the guest says.")
    networkIn = serializers.CharField(help_text="Received since the last start, for people.")
    networkOut = serializers.CharField(help_text="Sent since the last start, for people.")
    networkInBytes = serializers.IntegerField()
    networkOutBytes = serializers.IntegerField()
    uptime = serializers.IntegerField(help_text="Seconds since the last start.")
    apiCalls = serializers.IntegerField(help_text="API calls to this workspace.")


class StatsResponse(Success):
    stats = StatsObject()


class Counters(serializers.Serializer):
    at = serializers.DateTimeField()
    cpu_time_ns = serializers.IntegerField()
    disk_read_bytes = serializers.IntegerField()
    disk_write_bytes = serializers.IntegerField()
    net_rx_bytes = serializers.IntegerField()
    net_tx_bytes = serializers.IntegerField()
    memory_used_bytes = serializers.IntegerField(allow_null=True)
    memory_total_bytes = serializers.IntegerField(allow_null=True)


class MachineInfo(serializers.Serializer):
    id = serializers.CharField()
    status = serializers.ChoiceField(Status.choices)
    state = serializers.ChoiceField(
        ["absent", "off", "running", "paused", "asleep"], help_text="As the hypervisor says."
    )
    ready = serializers.BooleanField()
    ip = serializers.CharField(allow_null=True)
    host = serializers.CharField(allow_null=True)
    image = serializers.CharField()
    image_digest = serializers.CharField(allow_null=True)
    start_time = serializers.DateTimeField(allow_null=True)
    uptime = serializers.IntegerField()
    resources = ResourcesObject(help_text="What the machine was last made with.")
    error = Failure(allow_null=True)
    machine = serializers.DictField(allow_null=True, help_text="The machine as its host defines it.")
    counters = Counters(allow_null=True, help_text="Of the machine's process, since its start.")


class InfoResponse(Success):
    info = MachineInfo()


class ConfigResponse(Success):
    config = serializers.DictField(help_text="What the machine is made from; the environment without its values.")
