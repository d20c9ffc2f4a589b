"""For teaching: questions that the engine grades, guided tours, and a KV cache calculator."""

from kvviz.lessons import serving
from kvviz.lessons.block_steps import step_blocks, step_load
from kvviz.lessons.cache_arithmetic import BANDWIDTHS, MODELS, CacheSize, Calculator, ModelShape, cache_size
from kvviz.lessons.cache_rows import (
    RowTest,
    cache_path,
    circular,
    feed_chunks,
    first_difference,
    probabilities,
)
from kvviz.lessons.code_steps import step_code
from kvviz.lessons.legal_orders import orders, print_steps, small_graph
from kvviz.lessons.lesson_charts import (
    attention,
    block_tables,
    computed_rows,
    control,
    dependence,
    head_sharing,
    picture,
    row_changes,
    table,
)
from kvviz.lessons.questions.answer_kinds import Verdict
from kvviz.lessons.questions.question import Question, ask
from kvviz.lessons.questions.score import Score, ScoreCode, begin, read_score, score, write_score
from kvviz.lessons.quickstart_tour import quickstart_tour
from kvviz.lessons.run_meters import Work, per_run, step_that_makes, value_in_run, work
from kvviz.lessons.serving.forward_pass import Recomputed, changed_rows, recompute
from kvviz.lessons.stepping import Cell, Frame, Group, Stepping
from kvviz.lessons.story_animation import StoryFrame, animate, story_frames
from kvviz.lessons.story_steps import step_decodes, step_story
from kvviz.trace.guided_tour import Tour, TourStop
from kvviz.verification.session_record import run_bound, session_of

__all__ = ["BANDWIDTHS", "MODELS", "CacheSize", "Calculator", "ModelShape", "Question", "Recomputed", "RowTest"]
__all__ += ["Score", "StoryFrame", "Tour", "TourStop", "Verdict", "Work", "animate", "ask", "attention", "begin"]
__all__ += ["block_tables", "cache_path", "cache_size", "changed_rows", "circular", "computed_rows", "control"]
__all__ += ["dependence", "feed_chunks", "first_difference", "head_sharing", "orders", "per_run"]
__all__ += ["picture", "print_steps", "probabilities", "quickstart_tour", "recompute", "row_changes"]
__all__ += ["run_bound", "score", "serving", "session_of", "small_graph", "step_that_makes", "story_frames"]
__all__ += ["table", "value_in_run", "work"]
__all__ += ["Cell", "Frame", "Group", "ScoreCode", "Stepping", "read_score", "step_blocks", "step_code", "step_decodes"]
__all__ += ["step_load", "step_story", "write_score"]
