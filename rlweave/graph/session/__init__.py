"""One build: its components, and inference of what calls return and touch."""
