"""What a run leaves on the disk: its directory, metrics, and checkpoints that are whole or not there."""
