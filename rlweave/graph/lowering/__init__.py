"""Lowering: a graph becomes one flat, readable Python function, which is the object that runs."""
