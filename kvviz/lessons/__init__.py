"""What teachers use: questions that the engine grades, guided tours, and a calculator of caches."""

from kvviz.lessons import serving
from kvviz.lessons.asking import ask
from kvviz.lessons.cache_arithmetic import BANDWIDTHS, CacheSize, cache_size
from kvviz.lessons.calculator import Calculator
from kvviz.lessons.grading import Verdict
from kvviz.lessons.model_shapes import MODELS, ModelShape
from kvviz.lessons.progress import Score, begin, score
from kvviz.lessons.question import Question
from kvviz.lessons.quickstart_tour import quickstart_tour
from kvviz.lessons.row_deletion import RowDeletion
from kvviz.trace.guided_tour import Tour, TourStop

__all__ = [
    "BANDWIDTHS",
    "MODELS",
    "CacheSize",
    "Calculator",
    "ModelShape",
    "Question",
    "RowDeletion",
    "Score",
    "Tour",
    "TourStop",
    "Verdict",
    "ask",
    "begin",
    "cache_size",
    "quickstart_tour",
    "score",
    "serving",
]
