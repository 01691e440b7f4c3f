"""Ways to look for the best action; see `base.Search`."""

from aql.search.amortized import Amortized
from aql.search.base import Found, Score, Search
from aql.search.cem import CrossEntropy
from aql.search.exact import Exact
from aql.search.uniform import Uniform

__all__ = ["Amortized", "CrossEntropy", "Exact", "Found", "Score", "Search", "Uniform"]
