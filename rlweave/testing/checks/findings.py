"""What a check says: findings, each with its place, its likely cause and its fix, and the report that holds them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from enum import Enum


class Cause(Enum):
    """The likely cause of a finding, in one sentence."""

    # building and running
    CANNOT_BUILD = "it cannot be built"
    CANNOT_RUN = "it fails when it is called"
    BACKENDS_DIFFER = "backends compute different numbers"
    MODES_DIFFER = "compiled and eager mode compute different numbers"
    INCOMPLETE_STATE = "what it remembers is not all in variables, so a checkpoint loses a part"
    # rows of the batch
    ROWS_MEET = "rows of the batch reach each other"
    BATCH_TWICE = "an array of shape (B,) meets one of shape (B, 1) and becomes (B, B)"
    ROW_ORDER_COUNTS = "the order of the rows in the batch changes the result"
    BATCH_SIZE_COUNTS = "a row gives another result alone than in a batch"
    ROWS_LEFT_OUT = "rows of the batch have no effect on the loss"
    PADDING_COUNTS = "masked rows or steps change the result"
    WEIGHT_NOT_LINEAR = "a sample's weight does not multiply its share of the loss"
    # time
    LOOKS_AHEAD = "a result depends on later time steps"
    LOOKS_BACK = "a result of later time steps depends on earlier ones: an index is off"
    INCONSISTENT_RETURNS = "returns of values that are exactly right differ from them: a discount or an index is off"
    WRONG_STEP = "a result uses another step's reward, discount or probability than its own: an index is off by one"
    CROSSES_EPISODES = "a result reaches across the end of an episode"
    STATE_NOT_RESET = "the recurrent state is not reset at the start of an episode"
    TERMINATION_IGNORED = "the value after a terminal state is counted"
    TRUNCATION_AS_TERMINATION = "a cut episode is treated as if it had reached a terminal state"
    WRONG_BOOTSTRAP = "the bootstrap value is of the wrong observation, or of the wrong network"
    FRAGMENTS_DIFFER = "a trajectory in two fragments gives another result than in one"
    # gradients and variables
    WRONG_GRADIENT = "the gradient is not the derivative of the result"
    TARGET_HAS_GRADIENT = "a target is not detached: stop_gradient is missing"
    NOT_TRAINED = "no gradient reaches a variable that is to be learned"
    UNUSED_VARIABLE = "a variable has no effect"
    UNUSED_INPUT = "an input has no effect"
    # numbers
    NOT_FINITE = "a result, or its gradient, is NaN or infinite at the edge of an input's space"
    WIDE_FLOATS = "float64 leaks into a float32 computation"
    NEGATIVE = "a result is negative that cannot be, by its name"
    INTEGERS_ROUNDED = "integers pass through floats and lose digits"
    INPUT_CHANGED = "an input array is changed in place"
    SHARED_MEMORY = "a result shares memory with what is kept"
    SCALE_MATTERS = "the result depends on a scale that it is declared not to depend on"
    # randomness
    RANDOMNESS_OUTSIDE = "something outside of the graph is read: np.random, a clock or a global"
    NOT_RANDOM = "it is declared random, and always gives the same"
    DRAWN_ONCE = "one random number is drawn for all rows"
    DRAWN_TWICE = "one random number is used in two places"
    WRONG_FREQUENCIES = "samples do not follow the probabilities that are reported"
    NOT_A_DENSITY = "the reported probabilities do not add up to one"
    WRONG_ENTROPY = "the reported entropy is not that of the reported probabilities"
    NEVER_CHOSEN = "an action is never chosen"
    MASK_IGNORED = "an action is chosen that the mask forbids"
    # declarations
    UNNEEDED_DECLARATION = "it declares what it does not do"
    # agents
    LOSS_STAYS = "the loss does not fall on a fixed batch"
    WEIGHTS_STAY = "weights do not move in an update"
    WRONG_WEIGHTS_MOVE = "weights move that should not"
    EVALUATION_LEARNS = "evaluation, or acting without exploration, changes what was learned"
    EVALUATION_DRAWS = "it is told not to explore, and random numbers still count"
    ACTION_OUTSIDE = "an action lies outside of its space, or never comes near its bounds"
    RESUME_DIFFERS = "a saved and loaded agent goes on in another way"
    REWARD_IGNORED = "a reward, or a part of it, has no effect on what is learned or reported"
    PROBABILITIES_DIFFER = "the probabilities stored with actions are not those of the policy that learns"
    LOSS_SIGN = "the loss rises where the policy or the value function becomes better: a sign is off"
    CLIPPED_WRONG_SIDE = "clipping takes the gradient where the policy has moved the wrong way"
    ENTROPY_SIGN = "the entropy bonus lowers the entropy"
    NEVER_INSERTED = "a memory hands out a record that nobody inserted, or leaves of different records"
    PRIORITY_OF_ANOTHER_ROW = "a priority is written to the row of another record"
    # environments
    OUTSIDE_OF_SPACE = "an observation does not lie in the observation space"
    OBSERVATION_CHANGES_LATER = "an observation array is changed after it was handed out"
    INFO_CHANGES_LATER = "an info is changed after it was handed out"
    SEED_IGNORED = "the same seed does not repeat an episode"
    EPISODES_REPEAT = "every reset begins the same episode"
    ENVIRONMENTS_SHARE = "two environments in one process share what should be each one's own"
    NEVER_RESET = "an episode goes on where the one before it ended"
    BAD_REWARD = "a reward is not one finite number"
    BAD_ENDS = "terminated and truncated are not what they say"
    TIME_LIMIT_AS_TERMINATION = "a time limit is reported as a terminal state"
    BAD_MASK = "an action mask does not fit the actions"
    NOTHING_ALLOWED = "an action mask allows nothing"
    ACTION_IGNORED = "no action has an effect"
    FINAL_OBSERVATION_LOST = "the first observation of the next episode stands in the place of the last of an episode"
    COUNTED_TWICE = "a step is counted twice, or not at all, where an episode ends"
    ADVICE = "it will train better otherwise"


@dataclass(frozen=True)
class Finding:
    """One thing that a check found.

    Args:
        check: Name of the check, such as "batch independence".
        where: Component path, function and source line: `dqn/loss.td_loss, losses.py:41`.
        seen: What was done, and what moved.
        cause: The likely cause.
        fix: What to do about it.
    """

    check: str
    where: str
    seen: str
    cause: Cause
    fix: str

    @property
    def is_advice(self) -> bool:
        """It is no fault, and does not fail a check."""
        return self.cause is Cause.ADVICE

    def __str__(self) -> str:
        lines = [self.cause.value if not self.is_advice else self.seen, f"  where: {self.where}"]
        lines += [] if self.is_advice else [f"  seen:  {self.seen}"]
        return "\n".join([*lines, f"  fix:   {self.fix}", f"  check: {self.check}"])


@dataclass(frozen=True)
class Done:
    """A check that was made.

    Args:
        check: Its name.
        times: How many times it was made: on methods, backends, inputs.
        seconds: How long all of them took.
    """

    check: str
    times: int
    seconds: float


@dataclass
class Report:
    """What all checks of one subject say.

    Args:
        subject: What was checked.
        findings: What was found.
        done: The checks that were made.
        left_out: Checks that were not made, with the reason.
        facts: What else is good to know, such as the speed of an environment.
    """

    subject: str
    findings: list[Finding] = field(default_factory=list)
    done: list[Done] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Nothing was found but advice."""
        return all(finding.is_advice for finding in self.findings)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def to_data(self) -> dict[str, object]:
        """The report as JSON data."""
        findings = [asdict(f) | {"cause": f.cause.name, "says": f.cause.value} for f in self.findings]
        return {
            "subject": self.subject,
            "ok": self.ok,
            "findings": findings,
            "done": [asdict(done) for done in self.done],
            "left_out": self.left_out,
            "facts": self.facts,
        }

    def __str__(self) -> str:
        faults = sum(not finding.is_advice for finding in self.findings)
        count = "nothing found" if not faults else f"{faults} finding{'s' if faults > 1 else ''}"
        checks = ", ".join(f"{done.check} ({done.times})" if done.times > 1 else done.check for done in self.done)
        lines = [f"{self.subject}: {count}"]
        lines += [f"\n{finding}" for finding in sorted(self.findings, key=lambda finding: finding.is_advice)]
        lines += [f"\n{name}: {text}" for name, text in self.facts.items()]
        lines += [f"\nchecked: {checks}"] if checks else []
        lines += [f"not checked: {check}: {reason}" for check, reason in self.left_out.items()]
        return "\n".join(lines)
