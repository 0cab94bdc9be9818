"""One build, by phase: composition, completeness of components, inference of what calls return and touch."""
