"""The client of a model that speaks chat completions. Without rows."""
