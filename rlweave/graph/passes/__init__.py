"""Passes over a graph, one file each."""
