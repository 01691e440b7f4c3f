"""Everything that can be decided about a run: frozen, validated, printed into its folder."""

import dataclasses
import math
import numbers
import typing
from typing import Any, Literal

from aql.errors import UserError, unknown


def _field(default: Any, help: str) -> Any:
    return dataclasses.field(default=default, metadata={"help": help})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """The settings of a run. Defaults are the preset `fast`, but for what environments and agents have of their own."""

    env: str = _field("control/cartpole-swingup", "environment id, see `aql envs`")
    agent: str = _field("aql", "agent name, see `aql agents`")
    preset: Literal["fast", "paper"] = _field("fast", "what the other settings start from")
    seed: int = _field(0, "seed of everything random in the run")
    steps: int = _field(200_000, "actor steps, steps of all actors' environments, after which the run ends")

    # Acting.
    action_repeat: int = _field(1, "steps of the environment that an action is held for")
    actors: int = _field(8, "logical actors, each with its own environment, exploration and replay")
    epsilon_low: float = _field(0.02, "exploration of the least curious actor")
    epsilon_high: float = _field(0.3, "exploration of the most curious actor")
    epsilon_spacing: Literal["geometric", "tenth"] = _field(
        "geometric",
        "how actors spread between the two: geometrically, or the first tenth high and the rest low",
    )
    epsilon_per_subaction: bool = _field(True, "explore in each sub-action by itself instead of the whole action")
    exploration_hold: float = _field(
        1.0,
        "decisions that chance holds on to a sub-action for, on average, in the most curious actor; in the least "
        "curious, and where choices are masked, it is one",
    )
    optimism: float = _field(
        0.0, "deviations of the critics that exploring actors add to a value; for several critics and fresh_search"
    )
    noise_theta: float = _field(0.15, "how fast the noise of an actor returns to 0 (d3pg)")
    noise_sigma: float = _field(0.2, "deviation of what a step adds to the noise of an actor (d3pg)")
    random_steps: int = _field(2_000, "actor steps with uniform actions before learning starts")

    # Search.
    few_subactions: int = _field(
        0,
        "sub-actions up to which the best action is found: no pessimism there, and no curvature. Where there are more, "
        "D, there are; each explores less, by the square of this over D; nothing is magnified; 0: all of this is as it "
        "is set",
    )
    num_proposal: int = _field(32, "N, candidates from the proposal when acting")
    num_uniform: int = _field(32, "M, uniform candidates when acting")
    uniform_share: float = _field(
        1.0, "share of a uniform candidate's sub-actions that are drawn; the rest is copied from the proposal's samples"
    )
    enumerate_small: bool = _field(True, "score every action where there are no more than N + M of them")
    fresh_search: bool = _field(True, "search the best action a* again in the learner instead of using the actor's")
    learner_num_proposal: int = _field(8, "candidates from the proposal in a fresh search")
    learner_num_uniform: int = _field(8, "uniform candidates in a fresh search")
    cem_iterations: int = _field(3, "iterations of the cross-entropy method (qtopt)")
    cem_samples: int = _field(32, "samples per iteration of the cross-entropy method (qtopt)")
    cem_elites: int = _field(4, "elites of the cross-entropy method (qtopt)")

    # Actions and observations.
    bins: int = _field(5, "values that a continuous sub-action is discretised into")
    interval_encoding: Literal["value", "one-hot"] = _field("value", "how a discretised sub-action enters a network")
    image_torso: Literal["small", "resnet"] = _field("small", "network for images: patches, or the paper's ResNet")
    embedding_size: int = _field(256, "units of the layer after the network for images")
    memory_size: int = _field(0, "units of an LSTM between observation and networks; 0 is none")
    see_last_action: bool = _field(False, "the last action and reward are inputs, too")
    normalise_observations: bool = _field(True, "scale observations by their running mean and deviation")
    magnification: float = _field(
        0.0,
        "how many times larger what is near 0 of an observation is seen once more, beside its scaled numbers, unless "
        "there are more than few_subactions; 0: not",
    )

    # Networks.
    critic_layers: tuple[int, ...] = _field((256, 256), "units of the state tower of critics and values")
    num_critics: int = _field(2, "critics in the ensemble")
    pessimism: float = _field(
        1.0,
        "deviations of the critics that targets subtract from their mean, unless there are few_subactions; of two "
        "critics, 1 leaves the smaller",
    )
    proposal_layers: tuple[int, ...] = _field((256, 128), "units of the tower of the proposal, or of the policy")
    bias_unit: float = _field(1.0, "what a critic's last bias counts: the larger, the faster it goes to where Q is")
    curvature: bool = _field(
        False,
        "critics see the squares of intervals, too, so that the best may be between the bounds, unless there are "
        "few_subactions; with small_values, once Q is above those",
    )
    layer_norm: bool = _field(True, "layer norm in the state tower of critics and values")
    gaussian_std: float = _field(0.5, "fixed deviation of a Gaussian proposal or policy")

    # Experience.
    unroll_length: int = _field(1, "T, transitions in an unroll")
    replayed_per_new: int = _field(31, "R, replayed unrolls that go to the learner with every new one")
    replay_capacity: int = _field(100_000, "steps that each actor's replay holds")
    aligned_replay: bool = _field(False, "replay unrolls as they were sent instead of windows from anywhere")

    # Learning.
    batch_size: int = _field(128, "unrolls in an update")
    updates_per_call: int = _field(4, "updates in one compiled call")
    learning_rate: float = _field(1e-3, "Adam's step size for critics and values")
    proposal_learning_rate: float = _field(1e-3, "Adam's step size for the proposal, or the policy")
    gamma: float = _field(0.99, "discount per step")
    most_reward: float = _field(
        0.0, "most that a step of the environment brings: no target of Q goes above what it adds up to; 0 is unknown"
    )
    small_values: float = _field(
        0.0,
        "share of the scale on which critics learn Q that is for small values, which are told apart by their digits "
        "there; needs most_reward and a gamma below 1; 0: the scale is Q itself",
    )
    prediction_weight: float = _field(
        0.0,
        "weight of a critic's predictions, relative to the TD loss: how the numbers seen will change, and the reward; "
        "0 is none",
    )
    lambda_: float = _field(0.8, "lambda of Peng's Q(lambda), or of V-trace (impala)")
    trace_tolerance: float = _field(
        0.0,
        "how much less than a* an action may be worth for returns to go on beyond it, in units of reward; at that much "
        "they count for 1/e; 0: they go on beyond any action",
    )
    target_ema: float = _field(0.05, "step of the target networks towards the others; 1 is no target network")
    act_with_target: bool = _field(True, "act with the target networks, which change more smoothly")
    greedy_averages: int = _field(
        0,
        "averages of the critics, together over the last fifth of all updates, that greedy decisions use in turn; "
        "0: they use the actors' critics",
    )
    greedy_turn: int = _field(10, "decisions that each of these averages makes in its turn")
    entropy_weight: float = _field(0.01, "weight of the entropy in the loss of the proposal")
    policy_entropy_weight: float = _field(0.03, "weight of the entropy in the loss of the policy (impala)")
    effort_weight: float = _field(1e-2, "weight of the squared input of the policy's tanh in its loss (d3pg)")

    # Workers.
    workers: int = _field(0, "processes on Ray that share the actors among them; 0: actors and learner in one process")
    max_restarts: int = _field(10, "how many times in all a failed worker is started again before the run ends")
    worker_timeout: float = _field(300.0, "seconds without a result after which a worker counts as failed")

    # The run.
    eval_every: int = _field(10_000, "actor steps between greedy evaluations")
    eval_episodes: int = _field(10, "episodes of an evaluation")
    checkpoint_every: int = _field(100_000, "actor steps between checkpoints; each one ends the running episodes")
    log_every: int = _field(2_000, "actor steps between lines of metrics")

    def __post_init__(self) -> None:
        for name, hint in typing.get_type_hints(Config).items():
            if hint in KINDS:
                kind, words = KINDS[hint]
                given = getattr(self, name)
                self._require(name, isinstance(given, kind) and (hint is bool or not isinstance(given, bool)), words)
                object.__setattr__(self, name, hint(given))  # NumPy's numbers are none to JSON
            if hint == tuple[int, ...]:
                self._require_sizes(name)
            if typing.get_origin(hint) is Literal:
                choices = typing.get_args(hint)
                self._require(name, getattr(self, name) in choices, " or ".join(choices))
        at_least_one = [
            *("steps", "action_repeat", "actors", "bins", "batch_size", "updates_per_call", "unroll_length"),
            *("replay_capacity", "num_proposal", "learner_num_proposal", "num_critics", "embedding_size"),
            *("cem_iterations", "cem_samples", "cem_elites", "greedy_turn"),
            *("eval_every", "eval_episodes", "checkpoint_every", "log_every"),
        ]
        not_negative = [
            *("seed", "random_steps", "num_uniform", "learner_num_uniform", "memory_size", "workers", "max_restarts"),
            *("replayed_per_new", "few_subactions", "greedy_averages"),
        ]
        for name in at_least_one:
            self._require(name, getattr(self, name) >= 1, "at least 1")
        for name in not_negative:
            self._require(name, getattr(self, name) >= 0, "0 or more")
        for name in ("epsilon_low", "epsilon_high", "noise_theta", "uniform_share", "gamma", "lambda_"):
            self._require(name, 0 <= getattr(self, name) <= 1, "between 0 and 1")
        for name in ("learning_rate", "proposal_learning_rate", "gaussian_std", "bias_unit", "worker_timeout"):
            self._require(name, 0 < getattr(self, name) < math.inf, "above 0")
        self._require("exploration_hold", 1 <= self.exploration_hold < math.inf, "at least 1")
        weights = ("prediction_weight", "entropy_weight", "policy_entropy_weight", "effort_weight")
        others = ("noise_sigma", "magnification", "most_reward", "trace_tolerance")
        for name in ("optimism", "pessimism", *others, *weights):
            self._require(name, 0 <= getattr(self, name) < math.inf, "0 or more")
        self._require("target_ema", 0 < self.target_ema <= 1, "above 0 and at most 1")
        self._require("bins", self.bins >= 2, "at least 2")
        bounded = self.most_reward > 0 and self.gamma < 1
        self._require("small_values", 0 <= self.small_values < 1, "0 or more and below 1")
        self._require("small_values", not self.small_values or bounded, "0, or most_reward above 0 and gamma below 1")
        self._require("workers", self.workers <= self.actors, f"at most actors ({self.actors})")
        self._require("cem_elites", self.cem_elites <= self.cem_samples, f"at most cem_samples ({self.cem_samples})")
        self._require(
            "replay_capacity",
            self.replay_capacity > self.unroll_length,
            f"more than unroll_length ({self.unroll_length})",
        )

    def _require_sizes(self, name: str) -> None:
        sizes = getattr(self, name)
        whole = isinstance(sizes, tuple) and all(isinstance(size, numbers.Integral) for size in sizes)
        self._require(
            name, whole and len(sizes) >= 1 and min(sizes) >= 1, "one or more sizes of at least 1, as (256, 256)"
        )
        object.__setattr__(self, name, tuple(map(int, sizes)))

    def _require(self, name: str, holds: bool, expected: str) -> None:
        if not holds:
            raise UserError(f"{name} is {getattr(self, name)}: expected {expected}")

    def for_subactions(self, number: int) -> "Config":
        """The settings as they apply to actions with so many sub-actions.

        Among a few, a search finds the best action, what critics promise too much is what makes actors try things, and
        each is so large a part of a critic's units that Q bends in it. Among many, a search finds what critics are
        wrong about, and Q bends only where it is told to. A body with 21 joints falls when chance holds some of them,
        whatever the others do: so each explores less, by the square, which leaves fewer of them to chance at a time,
        too. And its many sensors drown in their own signs.
        """
        if not self.few_subactions:
            return self
        if number <= self.few_subactions:
            return dataclasses.replace(self, pessimism=0.0, curvature=False)
        less = (self.few_subactions / number) ** 2 if self.epsilon_per_subaction else 1.0
        return dataclasses.replace(
            self, magnification=0.0, epsilon_low=self.epsilon_low * less, epsilon_high=self.epsilon_high * less
        )

    def to_json(self) -> dict[str, Any]:
        """Plain types, as in config.json."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Config":
        """The inverse of `to_json`. Unknown keys raise."""
        known = {field.name for field in dataclasses.fields(cls)}
        for name in values:
            if name not in known:
                raise unknown("setting", name, known, "`aql train --help` lists them all")
        plain: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        return cls(**plain)


# What a value must be, by the type of its field.
KINDS: dict[Any, tuple[type, str]] = {
    int: (numbers.Integral, "a whole number"),
    float: (numbers.Real, "a number"),
    bool: (bool, "True or False"),
    str: (str, "a text"),
}
