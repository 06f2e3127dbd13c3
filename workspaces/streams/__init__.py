"""Event streams of workspaces: `stats/stream` and `logs/stream/...`. Served by the streams process (`common.sse`)."""
