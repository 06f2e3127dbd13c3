"""Uploads by token, as existing clients do them: one multipart form, one file. For the streams process."""
