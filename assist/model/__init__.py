"""The client of a model that speaks chat completions. No Django."""
