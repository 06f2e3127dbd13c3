"""Shapes of the metrics routes' responses for the OpenAPI document."""

from __future__ import annotations

from rest_framework import serializers as s

from workspaces.api.schemas import Failure, ResourcesObject, Success
from workspaces.states import Status


class StatsObject(s.Serializer):
    cpuUsage = s.FloatField(help_text="Percent of the CPUs that it has.")
    memoryUsage = s.FloatField(help_text="Percent of the memory that it has.")
    memoryUsedMB = s.FloatField()
    memoryTotalMB = s.FloatField()
    guestMemoryUsed = s.IntegerField(help_text="Bytes, as the guest says.")
    guestMemoryTotal = s.IntegerField(help_text="Bytes, as the guest says.")
    guestDiskUsed = s.IntegerField(help_text="Bytes of the writable disk, as the guest says.")
    guestDiskTotal = s.IntegerField(help_text="Bytes of the writable disk, as the guest says.")
    networkIn = s.CharField(help_text="Received since the last start, for people.")
    networkOut = s.CharField(help_text="Sent since the last start, for people.")
    networkInBytes = s.IntegerField()
    networkOutBytes = s.IntegerField()
    uptime = s.IntegerField(help_text="Seconds since the last start.")
    apiCalls = s.IntegerField(help_text="API calls to this workspace.")


class StatsResponse(Success):
    stats = StatsObject()


class Counters(s.Serializer):
    at = s.DateTimeField()
    cpu_time_ns = s.IntegerField()
    disk_read_bytes = s.IntegerField()
    disk_write_bytes = s.IntegerField()
    net_rx_bytes = s.IntegerField()
    net_tx_bytes = s.IntegerField()
    memory_used_bytes = s.IntegerField(allow_null=True)
    memory_total_bytes = s.IntegerField(allow_null=True)


class MachineInfo(s.Serializer):
    id = s.CharField()
    status = s.ChoiceField(Status.choices)
    state = s.ChoiceField(["absent", "off", "running", "paused", "asleep"], help_text="As the hypervisor says.")
    ready = s.BooleanField()
    ip = s.CharField(allow_null=True)
    host = s.CharField(allow_null=True)
    image = s.CharField()
    image_digest = s.CharField(allow_null=True)
    start_time = s.DateTimeField(allow_null=True)
    uptime = s.IntegerField()
    resources = ResourcesObject(help_text="What the machine was last made with.")
    error = Failure(allow_null=True)
    machine = s.DictField(allow_null=True, help_text="The machine as its host defines it.")
    counters = Counters(allow_null=True, help_text="Of the machine's process, since its start.")


class InfoResponse(Success):
    info = MachineInfo()


class ConfigResponse(Success):
    config = s.DictField(help_text="What the machine is made from; the environment without its values.")
