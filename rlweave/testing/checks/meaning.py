"""What the names of inputs mean: the library's words, those of Gymnasium and of other libraries."""

from __future__ import annotations

from enum import Enum


class Meaning(Enum):
    """What an input is. Row t of a trajectory holds the step from state s_t, unless the meaning says otherwise."""

    REWARDS = "the reward of a step"
    TERMINATED = "true where a step led to a terminal state"
    TRUNCATED = "true where an episode was cut after a step"
    ENDED = "true where an episode ended after a step, for either reason"
    CONTINUES = "1 where an episode goes on after a step, 0 where it ends"
    EPISODE_START = "true where a step is the first one of an episode"
    LAST_START = "true where the state after the last step is the first one of an episode"
    MASK = "false where a step is padding"
    WEIGHTS = "how much a sample counts"
    DISCOUNTS = "the factor on what follows a step"
    VALUES = "the value of s_t"
    NEXT = "something of the state that a step led to"
    FINAL = "something of the final observation, where an episode was cut"
    LAST = "something of the state after the last step"
    STATE = "what is carried to the first step"
    TARGET_LOG_PROBS = "log-probability of an action by the policy that learns"
    BEHAVIOUR_LOG_PROBS = "log-probability of an action by the policy that acted"
    ADVANTAGES = "how much better an action was than the others"
    RETURNS = "what a value is to become"
    ENTROPIES = "entropy of the policy that learns"
    DIVERGENCES = "how far the policy that learns is from another one"
    PREDICTIONS = "a value by the function that learns"


_NAMES: dict[Meaning, str] = {
    Meaning.REWARDS: "rewards reward r_t r",
    Meaning.TERMINATED: "terminated terminateds termination terminations terminal terminals is_terminal",
    Meaning.TRUNCATED: "truncated truncateds truncation truncations timeout timeouts time_limit",
    Meaning.ENDED: "done dones ended ends episode_end episode_ends episode_ended is_last",
    Meaning.CONTINUES: "continues nonterminal nonterminals non_terminal non_terminals not_done not_dones",
    Meaning.EPISODE_START: "episode_start episode_starts is_first first resets",
    Meaning.LAST_START: "last_done last_dones next_done next_dones last_episode_start last_episode_starts",
    Meaning.MASK: "mask padding_mask valid_mask loss_mask step_mask is_valid valid",
    Meaning.WEIGHTS: "weights weight importance_weights is_weights sample_weight sample_weights",
    Meaning.DISCOUNTS: "discounts discount_t discount",
    Meaning.VALUES: "values v_tm1 state_values baselines",
    Meaning.NEXT: "next_values next_value v_t next_state_values next_observations next_observation next_obs "
    "next_states new_observations obs_next next_q_values q_next target_q_next online_q_next next_log_probs "
    "next_features next_inputs bootstrap_values",
    Meaning.FINAL: "final_values final_observations final_observation final_obs terminal_values terminal_observations",
    Meaning.LAST: "last_values last_value last_observations last_obs bootstrap_value final_value",
    Meaning.STATE: "state states recurrent_state recurrent_states hidden hidden_state rnn_state rnn_states carry "
    "lstm_state initial_carry hx",
    Meaning.TARGET_LOG_PROBS: "target_log_probs target_log_prob log_probs log_prob logprobs new_log_probs pi_log_probs",
    Meaning.BEHAVIOUR_LOG_PROBS: "behaviour_log_probs behavior_log_probs old_log_probs mu_log_probs old_log_prob "
    "behaviour_log_prob old_logprobs",
    Meaning.ADVANTAGES: "advantages advantage adv advs",
    Meaning.RETURNS: "returns targets value_targets",
    Meaning.ENTROPIES: "entropies entropy",
    Meaning.DIVERGENCES: "kl kls kl_divergence kl_divergences kl_penalty",
    Meaning.PREDICTIONS: "predictions predicted_values new_values",
}
_BY_NAME = {name: meaning for meaning, names in _NAMES.items() for name in names.split()}
#: Words that are something else than what a leaf in them is called: `observations/mask` is no padding.
_OPAQUE = frozenset(("observations", "obs", "observation", "actions", "action", "parameters", "gradients"))

#: True (or 0, of CONTINUES) where an episode ends after a step.
ENDS = (Meaning.TERMINATED, Meaning.TRUNCATED, Meaning.ENDED, Meaning.CONTINUES)


def meaning_of(path: str) -> Meaning | None:
    """The meaning of an input by its path, such as "records/next_observations/image"; None: it has no known name."""
    for name in path.lower().split("/"):
        if name in _OPAQUE:
            return None
        if name in _BY_NAME:
            return _BY_NAME[name]
    return None
