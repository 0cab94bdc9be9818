"""Pictures of runs, component graphs and plans."""
