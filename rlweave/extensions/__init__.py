"""What only some users need: the core knows it by name (`rlweave.plugins`, `rlweave.backends`) and imports none of it.

`drawing` and `explain` show a built graph, `staging` brings the arguments of a later call to their devices, `eager`
runs API methods step by step, `placement` puts components on devices, `replication` splits a batch over several.
`tensorflow_` and `onnx_` are backends, found by the table in which packages of others are listed, too.
"""
