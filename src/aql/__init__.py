"""Q-learning for action spaces too large to enumerate: discrete, continuous and hybrid."""

from aql.actions import ActionSpace, Discrete, Interval
from aql.agents import AGENTS
from aql.api import AQL, load
from aql.config import Config
from aql.errors import UserError
from aql.presets import preset

__version__ = "0.1.0"

__all__ = ["AGENTS", "AQL", "ActionSpace", "Config", "Discrete", "Interval", "UserError", "load", "preset"]
