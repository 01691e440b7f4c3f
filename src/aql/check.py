"""Is an environment fit for training, and what becomes of its spaces? What `aql check` tells."""

import dataclasses
import re
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import gymnasium
import jax
import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from aql import agents, envs
from aql.actions import ActionSpace, Discrete, Interval
from aql.agents.base import EnvSpec
from aql.config import Config
from aql.envs import gym, observations
from aql.errors import UserError

LARGE_REWARD = 1_000.0  # beyond this, critics take long to grow to the size of the returns


class Finding(NamedTuple):
    """Something to mend: training needs an `error` mended and would suffer from a `warning`."""

    level: Literal["error", "warning"]
    words: str


@dataclasses.dataclass
class Report:
    """What was found, in the order in which it is told."""

    env_id: str
    facts: dict[str, str] = dataclasses.field(default_factory=dict)
    subactions: list[tuple[str, str, str]] = dataclasses.field(default_factory=list)  # name, kind, what the agent does
    findings: list[Finding] = dataclasses.field(default_factory=list)

    @property
    def fit(self) -> bool:
        """Whether nothing has to be mended before training."""
        return all(finding.level != "error" for finding in self.findings)

    def error(self, words: str) -> None:
        """Adds what training would fail at."""
        self._add(Finding("error", words))

    def warning(self, words: str) -> None:
        """Adds what training would suffer from."""
        self._add(Finding("warning", words))

    def _add(self, finding: Finding) -> None:
        kinds = {_kind(known.words) for known in self.findings}
        if _kind(finding.words) not in kinds:  # once is enough, though it may happen at every step
            self.findings.append(finding)

    def print(self, console: Console) -> None:
        """Writes the report for people."""
        console.print(f"[bold]{self.env_id}[/bold]")
        for name, words in self.facts.items():
            console.print(f"  {name:14}{words}", soft_wrap=True, markup=False)
        if self.subactions:
            table = Table(box=None, padding=(0, 2), header_style="dim")
            for header in ("sub-action", "is", "and becomes"):
                table.add_column(header)
            for row in self.subactions:
                table.add_row(*map(escape, row))
            console.print(table)
        colours = {"error": "red", "warning": "yellow"}
        for level, words in self.findings:
            console.print(f"[{colours[level]}]{level}[/] ", end="")
            console.print(words, soft_wrap=True, markup=False)
        verdict = "fit for training" if self.fit else "not fit for training: mend the errors first"
        console.print(f"[{'green' if self.fit else 'red'}]{verdict}[/]")


def _kind(words: str) -> str:
    """The words without their numbers."""
    return re.sub(r"-?[\d.]+(e[-+]?\d+)?", "", words)


class Step(NamedTuple):
    """What one step of one environment gave, as it came."""

    observation: dict[str, np.ndarray]  # by part
    reward: Any
    terminated: Any
    truncated: Any
    first: bool = False  # the observation of a reset


def check(env_id: str, config: Config, steps: int = 1000) -> Report:
    """Plays `steps` random steps, twice, and looks at all that comes back."""
    report = Report(env_id)
    build = envs.builder(env_id)
    if build is None:
        ours = envs.make(env_id, 1)
        report.facts["observation"] = ours.observations.describe()
        _describe_actions(report, config, EnvSpec.of(ours))
        ours.close()
        _compare(report, lambda: list(_play_vector(env_id, steps, config.seed)))
        return report
    try:
        env = build()
    except UserError:
        raise
    except Exception as error:  # the environment is the user's: whatever it raises is what has to be told
        report.error(f"the environment cannot be made, {type(error).__name__}: {error}")
        return report
    report.facts["observation"] = str(env.observation_space)
    report.facts["action"] = str(env.action_space)
    env.close()
    try:
        becomes = observations.from_gymnasium(env.observation_space)
        report.facts["observation"] += f", becomes {becomes.describe()}"
        space = ActionSpace.from_gymnasium(env.action_space)
        _describe_actions(report, config, EnvSpec(becomes.shape, space, becomes.dtype, becomes.parts))
    except UserError as error:
        report.error(str(error))
        return report
    _compare(report, lambda: list(_play_gym(report, build, becomes, space, steps, config.seed)))
    return report


def _describe_actions(report: Report, config: Config, env: EnvSpec) -> None:
    agent, space = agents.make(config, env), env.action_space
    pairs = list(zip(space.subactions, agent.space.subactions, strict=True))
    for start, end in _equal_neighbours(pairs):
        name = space.names[start] if end - start == 1 else f"{space.names[start]} to {space.names[end - 1]}"
        sub, ours = pairs[start]
        report.subactions.append((name, _words(sub), _becomes(ours)))
    counts = [int(n) for n in agent.space.num_choices]
    parts = [(counts[start], end - start) for start, end in _equal_neighbours(counts)]
    factors = " x ".join(f"{n}^{k}" if k > 1 else str(n) for n, k in parts)
    size = agent.space.describe_size()
    report.facts["actions"] = f"{factors} = {size}" if agent.space.is_discrete and len(counts) > 1 else size
    report.facts["agent"] = f"{config.agent}: {agent.summary}"


def _equal_neighbours(items: list[Any]) -> Iterator[tuple[int, int]]:
    """(start, end) of the longest stretches of equal items."""
    start = 0
    for i in range(1, len(items) + 1):
        if i == len(items) or items[i] != items[start]:
            yield start, i
            start = i


def _words(sub: Discrete | Interval) -> str:
    return f"one of {sub.n}" if isinstance(sub, Discrete) else f"in [{sub.low:g}, {sub.high:g}]"


def _becomes(sub: Discrete | Interval) -> str:
    if isinstance(sub, Discrete):
        return f"a softmax over {sub.n} choices"
    if sub.bins is None:
        return "continuous: uniform and Gaussian samples"
    values = np.linspace(sub.low, sub.high, sub.bins)
    listed = [f"{v:g}" for v in (values if sub.bins <= 5 else [*values[:2], values[-1]])]
    return f"{sub.bins} bins: {', '.join(listed if sub.bins <= 5 else [*listed[:2], '...', listed[2]])}"


def _compare(report: Report, play: Callable[[], list[Step]]) -> None:
    """Plays twice with the same seed and the same actions: it has to come out the same."""
    try:
        steps, again = play(), play()
    except UserError as error:
        report.error(str(error))
        return
    except Exception as error:  # the environment is the user's: whatever it raises is what has to be told
        report.error(f"the environment raised {type(error).__name__}: {error}")
        return
    played = 0
    for one, other in zip(steps, again, strict=False):
        if not _same(one, other):
            where = f"in the observation of the reset after {played} steps" if one.first else f"at step {played}"
            report.warning(
                f"two runs with the same seed and the same actions differ {where}: take all randomness from "
                "self.np_random, which reset(seed=...) sets"
            )
            break
        played += not one.first
    _measure(report, steps)


def _same(one: Step, other: Step) -> bool:
    rest = [(float(s.reward), bool(s.terminated), bool(s.truncated)) for s in (one, other)]
    seen = all(np.array_equal(part, other.observation[name]) for name, part in one.observation.items())
    return seen and rest[0] == rest[1]


def _measure(report: Report, steps: list[Step]) -> None:
    """Ranges, and what ends of episodes say."""
    steps = [step for step in steps if not step.first]
    rewards = np.array([float(step.reward) for step in steps])
    parts = steps[0].observation
    observed = {name: np.stack([step.observation[name] for step in steps]) for name in parts}
    report.facts["rewards"] = f"{rewards.min():.4g} to {rewards.max():.4g}, mean {rewards.mean():.4g}"
    ranges = [f"{name} {part.min():.4g} to {part.max():.4g}".strip() for name, part in observed.items()]
    report.facts["observations"] = ", ".join(ranges)
    ends = [t for t, step in enumerate(steps) if step.terminated or step.truncated]
    lengths = np.diff([-1, *ends])
    terminated = sum(bool(steps[t].terminated) for t in ends)
    if len(ends):
        report.facts["episodes"] = (
            f"{len(ends)} in {len(steps):,} steps, of {lengths.min()} to {lengths.max()} steps; "
            f"{terminated} terminated, {len(ends) - terminated} by a time limit"
        )
    else:
        report.warning(
            f"no episode ended in {len(steps):,} random steps: if none ever does, give it a time limit, "
            "gymnasium.wrappers.TimeLimit or register(..., max_episode_steps=...)"
        )
    if len(ends) > 1 and terminated == len(ends) and len(set(lengths)) == 1 and lengths[0] > 1:
        report.warning(
            f"every episode was terminated after exactly {lengths[0]} steps: if that is a time limit, return "
            "truncated=True instead, or the agent learns that nothing is worth anything near the end"
        )
    if np.abs(rewards).max() > LARGE_REWARD:
        report.warning(f"rewards reach {rewards[np.abs(rewards).argmax()]:.4g}: divide them so that they are about 1")
    if len(set(rewards.tolist())) == 1 and not terminated:
        report.warning(f"every reward was {rewards[0]:g}: random actions find nothing to learn from")
    for name, part in observed.items():
        if (part == part[0]).all():
            report.warning(f"{name or 'the observation'} never changed")


def _play_vector(env_id: str, steps: int, seed: int) -> Iterator[Step]:
    """Random steps of our own environments, which keep their contract."""
    env = envs.make(env_id, 1)
    env.reset(seed)
    key = jax.random.key(seed)
    for t in range(steps):
        env.send(np.asarray(env.action_space.sample(jax.random.fold_in(key, t), (1,))))
        now = env.receive()
        if not now.first[0]:
            yield Step({"": now.observation[0]}, now.reward[0], now.last[0] and now.discount[0] == 0, now.last[0])
    env.close()


def _play_gym(
    report: Report,
    build: Callable[..., gymnasium.Env],
    becomes: observations.Observations,
    space: ActionSpace,
    steps: int,
    seed: int,
) -> Iterator[Step]:
    """Random steps of a Gymnasium environment, every part of what comes back looked at."""
    env = build()
    spaces = (env.observation_space, env.action_space)
    masks = gym.Masks(env, space)
    rng = np.random.default_rng(seed)
    new: int | None = seed
    over = True
    for _ in range(steps):
        if over:
            observation, info = gym.unpack_reset(env.reset(seed=new))
            new = None
            if spaces != (env.observation_space, env.action_space):
                raise UserError("the environment changed its spaces at a reset: they must stay as they were at first")
            played = 0
            begins = _look(report, env.observation_space, becomes, observation, played)
            mask = masks.read(info, played, over=False)
            yield Step(begins, 0.0, False, False, first=True)
        action = space.to_env(_random_action(rng, space, mask))
        played += 1
        observation, reward, terminated, truncated, info = gym.unpack_step(env.step(action), played)
        for name, flag in (("terminated", terminated), ("truncated", truncated)):
            if not isinstance(flag, bool | np.bool_):
                report.error(f"{name} is {flag!r}, of {type(flag).__name__}: it must be True or False")
        array = _look(report, env.observation_space, becomes, observation, played)
        over = bool(terminated or truncated)
        mask = masks.read(info, played, over=bool(terminated))
        yield Step(array, reward, terminated, truncated)
    env.close()
    if mask.size:
        report.facts["masks"] = f"{mask.size} entries, given at every step"


def _look(
    report: Report, space: gymnasium.Space, becomes: observations.Observations, observation: Any, step: int
) -> dict[str, np.ndarray]:
    """The parts of the observation as the network gets them; one part without a name, mostly."""
    try:
        array = becomes.one(observation)
    except UserError as error:
        raise UserError(f"{error} (at step {step} of an episode)") from error
    if isinstance(space, gymnasium.spaces.Box) and np.asarray(observation).dtype != space.dtype:
        given = np.asarray(observation).dtype
        report.warning(f"observations are {given}, and their space says {space.dtype}: return what it says")
    elif not space.contains(observation):
        report.warning(f"the observation at step {step} is not in its space {space}, if only by its types")
    if not becomes.parts.packed:
        return {"": array}
    images, numbers = becomes.parts.unpack(array)
    seen = {f"image {i}": np.asarray(image) for i, image in enumerate(images)}
    return seen | ({"numbers": np.asarray(numbers)} if becomes.parts.numbers else {})


def _random_action(rng: np.random.Generator, space: ActionSpace, mask: np.ndarray) -> np.ndarray:
    """[D] a uniform action among those that the mask allows."""
    ends = np.cumsum(space.mask_sizes)
    action = rng.uniform(-1, 1, space.dimensions)
    for d, sub in enumerate(space.subactions):
        if isinstance(sub, Discrete):
            allowed = np.flatnonzero(mask[ends[d] - sub.n : ends[d]]) if mask.size else np.arange(sub.n)
            action[d] = rng.choice(allowed)
    return action
