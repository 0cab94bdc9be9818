"""Mutation testing of the library: small slips in components and graphs, and whether the tests notice."""
