"""All mutants of components, losses and agents."""

from tests.mutants import agents, distributions, exploration, losses, memories, networks, normalization, returns

COMPONENTS = (
    *losses.MUTANTS,
    *returns.MUTANTS,
    *networks.MUTANTS,
    *distributions.MUTANTS,
    *exploration.MUTANTS,
    *memories.MUTANTS,
    *normalization.MUTANTS,
)

AGENTS = agents.MUTANTS
