"""All mutants of components, losses and agents."""

from tests.mutants import (
    agents,
    distributions,
    exploration,
    kept,
    losses,
    memories,
    networks,
    normalization,
    policy_losses,
    returns,
)

COMPONENTS = (
    *losses.MUTANTS,
    *policy_losses.MUTANTS,
    *returns.MUTANTS,
    *networks.MUTANTS,
    *distributions.MUTANTS,
    *exploration.MUTANTS,
    *memories.MUTANTS,
    *kept.MUTANTS,
    *normalization.MUTANTS,
)

AGENTS = agents.MUTANTS
