"""Files of a run: its directory, metrics, and checkpoints, which are complete or absent."""
