"""Uploads by token, as existing clients send them: one multipart form, one file. For the streams process."""
