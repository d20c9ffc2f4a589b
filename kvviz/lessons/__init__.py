"""For teaching: questions that the engine grades, guided tours, and a KV cache calculator."""

from kvviz.lessons import serving
from kvviz.lessons.asking import ask
from kvviz.lessons.attention_picture import attention
from kvviz.lessons.cache_arithmetic import BANDWIDTHS, CacheSize, cache_size
from kvviz.lessons.calculator import Calculator
from kvviz.lessons.described_picture import picture
from kvviz.lessons.grading import Verdict
from kvviz.lessons.lesson_charts import block_tables, computed_rows, head_sharing, roofline
from kvviz.lessons.lesson_table import table
from kvviz.lessons.model_shapes import MODELS, ModelShape
from kvviz.lessons.progress import Score, begin, score
from kvviz.lessons.question import Question
from kvviz.lessons.quickstart_tour import quickstart_tour
from kvviz.lessons.recomputation import Recomputed, recompute
from kvviz.lessons.row_changes import changed_rows, row_changes
from kvviz.lessons.row_deletion import RowDeletion
from kvviz.lessons.run_value import step_that_makes, value_in_run
from kvviz.lessons.run_work import Work, work
from kvviz.lessons.small_graphs import print_steps, small_graph
from kvviz.lessons.story_animation import animate
from kvviz.lessons.story_frames import StoryFrame, story_frames
from kvviz.trace.guided_tour import Tour, TourStop

__all__ = [
    "BANDWIDTHS",
    "MODELS",
    "CacheSize",
    "Calculator",
    "ModelShape",
    "Question",
    "Recomputed",
    "RowDeletion",
    "Score",
    "StoryFrame",
    "Tour",
    "TourStop",
    "Verdict",
    "Work",
    "animate",
    "ask",
    "attention",
    "begin",
    "block_tables",
    "cache_size",
    "changed_rows",
    "computed_rows",
    "head_sharing",
    "picture",
    "print_steps",
    "quickstart_tour",
    "recompute",
    "roofline",
    "row_changes",
    "score",
    "serving",
    "small_graph",
    "step_that_makes",
    "story_frames",
    "table",
    "value_in_run",
    "work",
]
