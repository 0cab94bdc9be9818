"""What only some users of graphs need: the core knows it by name (`rlweave.plugins.extension`) and imports none of it.

`drawing` and `explain` show a built graph, `staging` brings the arguments of a later call to their devices, `eager`
runs API methods step by step, `placement` puts components on devices, `replication` splits a batch over several.
"""
