"""Settings that go together: of a preset, and where an environment or an agent differs from it."""

from typing import Any

from aql.config import Config
from aql.errors import unknown


def preset(name: str, **overrides: Any) -> Config:
    """The named preset, as the environment and the agent need it, with some settings changed."""
    if name not in PRESETS:
        raise unknown("preset", name, PRESETS, f"presets are {' and '.join(PRESETS)}")
    env, agent = overrides.get("env", Config.env), overrides.get("agent", Config.agent)
    for_env = next((settings.get(name, {}) for prefix, settings in FOR_ENV.items() if env.startswith(prefix)), {})
    for_agent = FOR_AGENT.get(agent, {}).get(name, {})
    return Config.from_json({"preset": name, **PRESETS[name], **for_env, **for_agent, **overrides})


PRESETS: dict[str, dict[str, Any]] = {
    "fast": {},
    # The paper's appendix. Its runs are of 2e8 steps: ask for them with --steps.
    "paper": {
        "steps": 3_000_000,
        "action_repeat": 1,
        "actors": 100,
        "epsilon_low": 0.05,
        "epsilon_high": 0.5,
        "epsilon_spacing": "tenth",
        "epsilon_per_subaction": False,
        "random_steps": 0,
        "num_proposal": 100,
        "num_uniform": 400,
        "uniform_share": 1.0,
        "enumerate_small": False,
        "fresh_search": False,
        "cem_iterations": 3,
        "cem_samples": 100,
        "cem_elites": 10,
        "bins": 5,
        "interval_encoding": "value",
        "normalise_observations": False,
        "critic_layers": (400, 300),
        "num_critics": 1,
        "proposal_layers": (300, 200),
        "layer_norm": False,
        "gaussian_std": 0.5,
        "unroll_length": 30,
        "replayed_per_new": 2,
        "replay_capacity": 100_000,
        "aligned_replay": True,
        "batch_size": 32,
        "updates_per_call": 1,
        "learning_rate": 2e-4,
        "proposal_learning_rate": 2e-4,
        "gamma": 0.99,
        "lambda_": 0.8,
        "entropy_weight": 0.01,
        "policy_entropy_weight": 0.01,
        "effort_weight": 0.0,
        "target_ema": 1.0,
        "act_with_target": False,
        "eval_every": 100_000,
        "checkpoint_every": 1_000_000,
        "log_every": 30_000,
    },
}

# Learning from what the policy itself did: unrolls that are used once, soon and in small batches. The short memory is
# there for whoever asks for replay.
_ON_POLICY: dict[str, dict[str, Any]] = {
    "fast": {
        "actors": 16,
        "random_steps": 0,
        "unroll_length": 16,
        "replayed_per_new": 0,
        "replay_capacity": 1_000,
        "aligned_replay": True,
        "batch_size": 4,
        "updates_per_call": 4,
        "critic_layers": (256, 256),
        "proposal_layers": (256, 128),
        "proposal_learning_rate": 5e-4,
        "lambda_": 0.95,
    },
    "paper": {"replayed_per_new": 0, "replay_capacity": 1_000, "lambda_": 1.0},
}

# Where environments differ from a preset: settings by the beginning of the id and by preset.
FOR_ENV: dict[str, dict[str, dict[str, Any]]] = {
    # Control steps are so short that one action hardly matters: returns over eight of them tell good ones apart, and
    # stop where an action was worth less than a*, be it chance or a policy of long ago that chose it.
    # Which gait or grip is found early decides, so actors try what the critics disagree on. With that less chance will
    # do for most of them; the others hold on to theirs, which finds what is far away. Six sub-actions are few, and 14
    # many: with the smaller critic in targets hoppers are given up before they are found, and humanoids need it. Values
    # are in the tens there, and a policy stays curious only if its entropy counts among them. No task there pays more
    # than 1 a step.
    # How often Q is corrected counts for more than how wide it is: small networks in small batches are updated once for
    # each step of the environment. Few of the learner's candidates are uniform: where Q says nothing yet, they win as
    # often as others, and would teach the proposal to be uniform. Critics that also predict what follows tell actions
    # apart by what they do, not only by what they are worth. So many corrections make Q go up and down, which actors
    # explore by, and which gets them out of where they are stuck; who is to do well uses averages, and several in turn.
    # Where next to nothing is earned, critics tell it apart by its digits, so that a humanoid on the ground has
    # something to climb; once it earns, they see squares of its many sub-actions, too, so that it need not pull at full
    # strength. A target is reached, a joint straight, a foot in touch where a sensor is at 0: what is near it is seen
    # magnified, or a finger stops a centimetre before it.
    "control/": {
        "fast": {
            "unroll_length": 8,
            "lambda_": 1.0,
            "trace_tolerance": 1.0,
            "critic_layers": (128, 128),
            "proposal_layers": (128, 64),
            "learner_num_proposal": 8,
            "learner_num_uniform": 2,
            "batch_size": 8,
            "updates_per_call": 16,
            "replayed_per_new": 63,
            "target_ema": 0.025,
            "greedy_averages": 4,
            "random_steps": 4_000,
            "epsilon_low": 0.01,
            "epsilon_high": 0.3,
            "exploration_hold": 16.0,
            "optimism": 1.0,
            "few_subactions": 6,
            "most_reward": 1.0,
            "small_values": 0.1,
            "bias_unit": 30.0,
            "curvature": True,
            "prediction_weight": 0.3,
            "magnification": 10.0,
            "policy_entropy_weight": 0.3,
        },
    },
    # A goal is many steps away, and pictures take time and memory: longer unrolls, fewer of them, a shorter replay.
    # The paper's own are its settings of the first-person tasks; the levels themselves hold an action for 4 frames.
    "doom/": {
        "fast": {
            "gamma": 0.98,
            "unroll_length": 5,
            "replayed_per_new": 15,
            "batch_size": 32,
            "replay_capacity": 20_000,
        },
        "paper": {
            "num_uniform": 500,
            "image_torso": "resnet",
            "memory_size": 256,
            "see_last_action": True,
            "unroll_length": 100,
        },
    },
}

# Where agents differ from a preset: settings by agent and preset. They go before those of environments.
FOR_AGENT: dict[str, dict[str, dict[str, Any]]] = {
    # A policy that climbs Q finds its errors faster than a search among a few candidates: slower targets, with the
    # smaller critic in them, keep Q honest. Predictions did not help it; what a scale for small values would do to it
    # is not known.
    "d3pg": {
        "fast": {
            "target_ema": 0.01,
            "few_subactions": 0,
            "prediction_weight": 0.0,
            "small_values": 0.0,
            "bias_unit": 1.0,
            "curvature": False,
        }
    },
    "impala": _ON_POLICY,
    "impala-gaussian": _ON_POLICY,
}
