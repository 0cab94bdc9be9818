"""What only some users need, on the registries that third parties use: ES, MAML, several agents, populations, Tune.

Each algorithm is an entry point of rlweave's own package (see `pyproject.toml`), as one of another package would be.
Nothing outside of this package imports it; each file here imports what it uses of the core, as any plug-in does.
"""
