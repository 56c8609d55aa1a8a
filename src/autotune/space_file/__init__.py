"""The search-space file: strict YAML in, a `SearchSpace` or every mistake with its line out.

It imports no plug-in: which launchers, gates and samplers there are comes in as a `Vocabulary`.
"""

from autotune.space_file.reader import read_search_space
from autotune.space_file.vocabulary import Vocabulary

__all__ = ["Vocabulary", "read_search_space"]
