"""Settings: declared with a default, help and unit, checked against ranges, read from YAML, files and dotted keys."""
