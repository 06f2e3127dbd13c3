"""Client of a model that speaks chat completions. It has no rows."""
