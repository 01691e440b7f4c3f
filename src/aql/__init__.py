"""Q-learning for action spaces too large to enumerate: discrete, continuous and hybrid."""

__version__ = "0.1.0"
