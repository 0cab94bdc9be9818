"""Checks that find silent bugs in components, agents and environments, with no test written for them."""
