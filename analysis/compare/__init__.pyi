from .paired import Comparison as Comparison
from .paired import Difference as Difference
from .paired import Rate as Rate
from .paired import compare as compare
from .paired import compare_scores as compare_scores
from .scores import read_scores as read_scores
