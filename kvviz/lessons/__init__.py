"""For teaching: questions that the engine grades, guided tours, and pictures in steps."""

from kvviz.lessons import serving
from kvviz.lessons.block_steps import step_blocks, step_load
from kvviz.lessons.cache_rows import RowTest, cache_path, circular, feed_chunks, first_difference, probabilities
from kvviz.lessons.code_steps import step_code
from kvviz.lessons.legal_orders import orders, print_steps, small_graph
from kvviz.lessons.lesson_charts import computed_rows, control, picture, row_changes, table
from kvviz.lessons.questions.answer_kinds import Verdict
from kvviz.lessons.questions.question import Question, ask
from kvviz.lessons.questions.score import Score, ScoreCode, begin, read_score, score, write_score
from kvviz.lessons.quickstart_tour import quickstart_tour
from kvviz.lessons.run_meters import Work, per_run, step_that_makes, value_in_run, work
from kvviz.lessons.serving.forward_pass import Recomputed, changed_rows, recompute
from kvviz.lessons.stepping import Cell, Frame, Group, Stepping
from kvviz.lessons.story_steps import StoryFrame, step_decodes, step_story, story_frames
from kvviz.trace.guided_tour import Tour, TourStop
from kvviz.verification.session_record import run_bound, session_of

__all__ = ["Cell", "Frame", "Group", "Question", "Recomputed", "RowTest", "Score", "ScoreCode", "Stepping"]
__all__ += ["StoryFrame", "Tour", "TourStop", "Verdict", "Work", "ask", "begin", "cache_path", "changed_rows"]
__all__ += ["circular", "computed_rows", "control", "feed_chunks", "first_difference", "orders", "per_run"]
__all__ += ["picture", "print_steps", "probabilities", "quickstart_tour", "read_score", "recompute", "row_changes"]
__all__ += ["run_bound", "score", "serving", "session_of", "small_graph", "step_blocks", "step_code", "step_decodes"]
__all__ += ["step_load", "step_story", "step_that_makes", "story_frames", "table", "value_in_run", "work"]
__all__ += ["write_score"]
