"""Suites: which tasks, agents and seeds a sweep runs, and with which settings.

A suite is a TOML file:

    name = "mine"
    agents = ["aql", "impala"]
    steps = 100_000
    tasks = ["CartPole-v1", { env = "control/walker-walk", steps = 200_000, settings = { bins = 3 } }]
    [settings]                 # of all runs
    unroll_length = 5
    [agent_settings.impala]    # of one agent's runs, on every task; `steps` too
    unroll_length = 16

An agent's settings go before a task's, these before the suite's, and all of them before what the preset says.
"""

import dataclasses
import hashlib
import json
import re
import tomllib
import typing
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from aql.config import Config
from aql.errors import UserError, unknown
from aql.presets import PRESETS, preset

SHIPPED = Path(__file__).parent / "shipped"
UNHASHED = ("env", "agent", "preset", "seed", "steps")


@dataclasses.dataclass(frozen=True)
class Task:
    """An environment of a suite and what is special about it."""

    env: str
    group: str
    steps: int
    settings: dict[str, Any]
    agents: tuple[str, ...] = ()  # besides those of the suite


@dataclasses.dataclass(frozen=True)
class Suite:
    """What a sweep runs: tasks x agents x seeds."""

    name: str
    description: str
    tasks: tuple[Task, ...]
    agents: tuple[str, ...]
    preset: str
    seeds: int
    settings: dict[str, Any]
    agent_settings: dict[str, dict[str, Any]]  # by agent

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise UserError(f"seeds is {self.seeds}: expected at least 1")
        if self.preset not in PRESETS:
            raise unknown("preset", self.preset, PRESETS, f"presets are {' and '.join(PRESETS)}")
        for what, names in (("task", [task.env for task in self.tasks]), ("agent", list(self.agents))):
            if not names:
                raise UserError(f"suite {self.name} has no {what}: name at least one")
            if twice := {name for name in names if names.count(name) > 1}:
                raise UserError(f"{what} {min(twice)} is in suite {self.name} twice: name it once")

    @property
    def all_agents(self) -> tuple[str, ...]:
        """Those of the suite, then those of single tasks, each once."""
        return _once(*self.agents, *(agent for task in self.tasks for agent in task.agents))


class Cell(NamedTuple):
    """One run of a sweep."""

    config: Config
    group: str
    run: Path

    def __str__(self) -> str:
        return f"{self.config.env} {self.config.agent} s{self.config.seed}"


def shipped() -> dict[str, Path]:
    """The suites that come with the package, by name."""
    return {path.stem: path for path in sorted(SHIPPED.glob("*.toml"))}


def load(name: str) -> Suite:
    """The shipped suite of this name, or the suite in this TOML file."""
    path = Path(name) if name.endswith(".toml") else shipped().get(name)
    if path is None:
        raise unknown("suite", name, shipped(), f"suites are {', '.join(shipped())}, or name a TOML file")
    if not path.is_file():
        raise UserError(f"there is no suite {path}: name a TOML file, or one of {', '.join(shipped())}")
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not TOML ({error}): mend the file") from error
    known: dict[str, type] = {"name": str, "description": str, "tasks": list, "agents": list, "preset": str}
    known |= {"seeds": int, "steps": int, "settings": dict, "agent_settings": dict}
    _check_keys(values, known, f"{path}", {"name", "tasks", "agents"})
    tasks = []
    for task in values["tasks"]:
        task = task if isinstance(task, dict) else {"env": task}
        kinds = {"env": str, "group": str, "steps": int, "settings": dict, "agents": list}
        _check_keys(task, kinds, f"{path}, task {task.get('env', '?')}", {"env"})
        steps = task.get("steps", values.get("steps"))
        if steps is None:
            raise UserError(f"{path}, task {task['env']} has no steps: give the task or the suite `steps`")
        own = (_typed_all(task.get("settings", {})), tuple(task.get("agents", ())))
        tasks.append(Task(task["env"], task.get("group", ""), steps, *own))
    by_agent = values.get("agent_settings", {})
    _check_keys(by_agent, dict.fromkeys(by_agent, dict), f"{path}, agent_settings", set())
    return Suite(
        name=values["name"],
        description=values.get("description", ""),
        tasks=tuple(tasks),
        agents=tuple(values["agents"]),
        preset=values.get("preset", "fast"),
        seeds=values.get("seeds", 1),
        settings=_typed_all(values.get("settings", {})),
        agent_settings={agent: _typed_all(own, "steps") for agent, own in by_agent.items()},
    )


def select(
    suite: Suite,
    agents: Sequence[str] = (),
    tasks: Sequence[str] = (),
    seeds: int | None = None,
    steps: int | None = None,
    settings: dict[str, Any] | None = None,
) -> Suite:
    """The suite with other agents, with some of its tasks (by id, without its prefix, or by group), shorter, changed.

    `settings` go before all that the suite says.
    """
    for name in tasks:
        known = {alias for task in suite.tasks for alias in _aliases(task)}
        if name not in known:
            raise unknown("task", name, known, f"suite {suite.name} has {', '.join(t.env for t in suite.tasks)}")
    chosen = [task for task in suite.tasks if not tasks or _aliases(task) & set(tasks)]
    changed = _typed_all(settings or {})
    of_agents = changed | ({} if steps is None else {"steps": steps})
    return dataclasses.replace(
        suite,
        agents=tuple(agents) or suite.agents,
        tasks=tuple(
            dataclasses.replace(
                task,
                steps=task.steps if steps is None else steps,
                settings=task.settings | changed,
                agents=() if agents else task.agents,
            )
            for task in chosen
        ),
        seeds=suite.seeds if seeds is None else seeds,
        agent_settings={agent: own | of_agents for agent, own in suite.agent_settings.items()},
    )


def expand(suite: Suite, out: Path) -> list[Cell]:
    """The cells, all of seed 0 first: a sweep that is cut short has something of everything."""
    return [
        Cell(_config(suite, task, agent, seed), task.group, out / re.sub(r"[/?&]", "_", task.env) / agent / f"s{seed}")
        for seed in range(suite.seeds)
        for task in suite.tasks
        for agent in _once(*suite.agents, *task.agents)
    ]


def parse_settings(pairs: Iterable[str]) -> dict[str, Any]:
    """The settings that KEY=VALUE texts name; values are those of TOML, and texts need no quotes."""
    settings = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise UserError(f"--set {pair}: expected KEY=VALUE, as in --set batch_size=256")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = {"True": True, "False": False}.get(text, text)
        settings[name.strip().replace("-", "_")] = value
    return _typed_all(settings)


def config_hash(config: Config) -> str:
    """The first 12 hex digits of the SHA-256 of the settings as canonical JSON (sorted keys, no spaces).

    All settings of the config are in, but `env`, `agent`, `preset`, `seed` and `steps`, which results name themselves:
    equal hashes mean that two runs learned and were measured in the same way, whatever on and however long.
    """
    values = {name: value for name, value in config.to_json().items() if name not in UNHASHED}
    canonical = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def _once(*names: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _aliases(task: Task) -> set[str]:
    return {task.env, task.env.rpartition("/")[2]} | ({task.group} if task.group else set())


def _config(suite: Suite, task: Task, agent: str, seed: int) -> Config:
    settings = {"steps": task.steps} | suite.settings | task.settings | suite.agent_settings.get(agent, {})
    return preset(suite.preset, **(settings | {"env": task.env, "agent": agent, "seed": seed}))


def _check_keys(values: dict[str, Any], kinds: dict[str, type], where: str, required: set[str]) -> None:
    for name, value in values.items():
        if name not in kinds:
            raise unknown("key", name, kinds, f"{where} may have {', '.join(kinds)}")
        if not isinstance(value, kinds[name]) or isinstance(value, bool):
            raise UserError(f"{where}: {name} is {value!r}, expected {kinds[name].__name__}")
    for name in sorted(required - values.keys()):
        raise UserError(f"{where} has no {name}: add one")


def _typed_all(settings: dict[str, Any], *more: str) -> dict[str, Any]:
    """The settings, and what `more` names, in the types of the config: 1 and 1.0 are one setting with one hash."""
    hints = typing.get_type_hints(Config)
    for name in settings:
        if name in UNHASHED and name not in more:
            raise UserError(f"{name} is not a setting of a sweep: give it by the suite, or by the option of its name")
        if name not in hints:
            raise unknown("setting", name, hints, "`aql train --help` lists them all")
    return {name: _typed(name, value, hints[name]) for name, value in settings.items()}


def _typed(name: str, value: Any, hint: Any) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal and value in arguments:
        return value
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(_typed(name, item, arguments[0]) for item in value)
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(hint, type) and origin is None and type(value) is hint:
        return value
    expected = " or ".join(map(str, arguments)) if origin is typing.Literal else getattr(hint, "__name__", hint)
    expected = "a list such as [256, 256]" if origin is tuple else expected
    raise UserError(f"{name} is {value!r}: expected {expected}")


def check_names(suite: Suite) -> None:
    """Finds misspelt agents and environments before anything is run."""
    from aql import envs
    from aql.agents import AGENTS

    for agent in (*suite.all_agents, *suite.agent_settings):
        if agent not in AGENTS:
            raise unknown("agent", agent, AGENTS, "`aql agents` lists them")
    for task in suite.tasks:
        if envs.misses_id(task.env):
            raise unknown("environment", task.env, envs.list_ids(), "`aql envs` lists them all")
