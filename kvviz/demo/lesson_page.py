"""The first lesson as one HTML file without a kernel or a network, which a teacher can send to a class.

Its contents come from three decodes of the storyteller that are recorded while the file is made: with growing caches,
with reserved room, and without a cache.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape

import numpy as np

from kvviz.decode.public_runs import decode
from kvviz.demo.storyteller import BEGINNING, model, story, vocabulary
from kvviz.errors import KvvizError
from kvviz.lessons.serving.forward_pass import forward, recompute
from kvviz.lessons.story_steps import step_decodes, step_story
from kvviz.view.page_modules import bundled

LESSON = "story"  # its name in a score
_RUN = 3  # that the last question asks about
_ROUNDING = 1e-4


@dataclass(frozen=True, slots=True)
class PageQuestion:
    """A question that the page grades. ``hints``: by wrong answer; ``otherwise``: for all others."""

    text: str
    answer: str | int
    hints: Mapping[str, str]
    otherwise: str
    why: str
    choices: Sequence[str] = ()

    def html(self, number: int) -> str:
        if self.choices:
            boxes = "".join(
                f'<label><input type="radio" name="q{number}" value="{escape(choice)}"> {escape(choice)}</label>'
                for choice in self.choices
            )
        else:
            boxes = f'<input type="text" inputmode="text" autocomplete="off" aria-label="Answer to question {number}">'
        return (
            f'<form class="kv-ask" data-kv="question" autocomplete="off"><fieldset><legend>'
            f'Question {number}. {escape(self.text)}</legend><div class="kv-answers">{boxes}</div>'
            '<div class="kv-line" data-live hidden><button data-kv="check">Check</button> '
            '<button type="button" data-kv="reveal">Show the answer</button></div>'
            '<p role="status" data-kv="said"></p></fieldset></form>'
        )


def lesson_page(beginning: str = BEGINNING) -> str:
    """Record the story three times, and return the lesson about it as HTML. ``beginning``: of the story, in the model's
    words. Raises `KvvizError`: if the story is too short to be asked about."""
    trace = story(beginning)
    words, prompt, runs = trace.words or [], len(trace.prompt), len(trace.runs)
    if trace.interrupted:
        raise KeyboardInterrupt
    if runs <= _RUN + 1:
        raise KvvizError(f"this story ends after {runs} runs; choose another beginning")
    without = recompute(model(), trace.prompt, runs, vocabulary())
    roomy = decode(model(), trace.prompt, runs, kv_capacity=len(words), tokenizer=vocabulary(), progress=False)
    # Keys and values of the prompt, computed from the prompt alone and from the whole story.
    first, last = (forward(model(), [fed]).rows for fed in (trace.prompt, [*trace.prompt, *trace.tokens[:-1]]))
    same = all(np.allclose(rows, last[name][:, :, :prompt], atol=_ROUNDING) for name, rows in first.items())
    sums = {"without": sum(without.rows), "with": sum(run.rows_written for run in trace.caches[0].runs)}
    row = sum(cache.runs[1].bytes_written - cache.runs[1].bytes_copied for cache in trace.caches)
    copied = [sum(cache.runs[k].bytes_copied for cache in trace.caches) for k in range(runs)]
    figures = (
        step_story(trace, without).html(),
        step_story(trace).html(),
        step_decodes(trace, roomy, ("no room reserved", f"room for {len(words)} rows reserved")).html(),
    )
    questions = tuple(_questions(words[min(9, prompt - 1)], same, prompt, runs, sums, copied[_RUN] // row))
    asked = [question.html(number) for number, question in enumerate(questions, 1)]
    data = {"lesson": LESSON, "questions": [asdict(question) for question in questions]}
    facts = {"words": len(words), "caches": len(trace.caches), "row": row, "copied": sum(copied)}
    body = _BODY.format(figures=figures, asked=asked, **facts)
    return _PAGE.format(
        style=bundled("lesson.css").decode(),
        body=body,
        data=json.dumps(data, ensure_ascii=False).replace("<", "\\u003c"),
        script=bundled("lessonpage.js").decode(),
    )


def _questions(
    word: str, same: bool, prompt: int, runs: int, sums: Mapping[str, int], copied: int
) -> Iterator[PageQuestion]:
    ways = (
        "Both change: every row depends on all words of the story",
        "Only the key changes: it is compared with every new query",
        "Nothing: a row depends on its own word and on the words before it",
    )
    yield PageQuestion(
        f"Later runs read more words. What do they change in the key and the value of “{word}”?",
        ways[2 if same else 0],
        {
            ways[0]: "a word cannot see the words after it. Which words can change what is computed for it?",
            ways[1]: "the comparison uses the key. Does it also change the key?",
        },
        "look at what the row is computed from",
        "Recorded: the rows of the prompt are the same numbers in the first run and in the last, but for rounding. "
        "Computing them again is work for nothing.",
        ways,
    )
    yield PageQuestion(
        f"The prompt has {prompt} words, and {runs} runs write the story. "
        "With a cache, how many key rows does one layer compute for the whole story?",
        sums["with"],
        {
            str(sums["without"]): "that many are computed without a cache",
            str(sums["with"] + 1): "the word that the last run chooses is never read",
            str(runs): "run 0 computes a row for each word of the prompt",
            str(runs - 1): "and the rows of the prompt?",
            str(prompt): "each run after run 0 computes one more row",
            str(prompt * runs): "only run 0 reads the prompt",
        },
        "run 0 computes the rows of the prompt. And every later run?",
        f"{prompt} in run 0, and 1 in each of {runs - 1} more runs. Without a cache: {sums['without']:,}.",
    )
    yield PageQuestion(
        f"No room is reserved. Run 0 leaves {prompt} rows in each array. "
        f"How many rows does run {_RUN} copy in each array?",
        copied,
        {
            "0": "that is so with reserved room. Here the new array is empty: where do the old rows come from?",
            "1": "the new row is computed, not copied. What happens to the old rows?",
            str(prompt): f"runs 1 to {_RUN - 1} have added rows, too",
            str(copied + 1): "the row of this run is computed, not copied",
        },
        f"how many rows are in the array when run {_RUN} begins?",
        f"{prompt} + {_RUN - 1}: all rows that the runs before it left. Run {runs - 1} copies {prompt + runs - 2}.",
    )


_BODY = """
<header><h1>Why a language model keeps a cache</h1>
<p>About 15 minutes. While this page was made, a small model wrote a story of {words} words. Every word, row, weight
and byte below was recorded then. Step through the pictures with the buttons or the arrow keys.</p></header>
<section><h2>1. What is computed</h2>
<p>A language model writes one word at a time, and each new word takes one <b>run</b> of the whole model. In every
layer, a run computes two short rows of numbers for each word that it reads:</p>
<ul><li>the <b>key</b>: what the word can be found by;</li><li>the <b>value</b>: what the word passes on.</li></ul>
<p>The newest word also has a <b>query</b>: what it looks for. It is compared with the keys of all words, its own
included. The better a key fits, the more <b>weight</b> the word gets: the green bars. The values, each times its
weight, are added up. From such sums the model chooses the next word.</p>
<p>Below, nothing is kept between runs. (We count key rows of one layer. Value rows are as many. The bars are those of
one of its four heads. <code>&lt;s&gt;</code> marks the beginning, and counts as a word.)</p>
{figures[0]}
{asked[0]}</section>
<section><h2>2. What the cache keeps</h2>
<p>Old keys and values are needed in every run, so they can be kept: this memory is the <b>KV cache</b>. A run then
reads only the newest word. It <b>writes</b> one row of keys and one of values, and <b>reads</b> all others. Queries
are not kept: no later run needs them.</p>
{asked[1]}
<p>Check it in the last step:</p>
{figures[1]}</section>
<section><h2>3. Where the new row goes</h2>
<p>The rows of a cache lie side by side in an array. If the array is full, the new row has no place: a longer array is
made, and the old rows have to be moved. If room is <b>reserved</b> ahead, the new row is written into the next free
place.</p>
{asked[2]}
<p>Here is the same story both ways. The model has {caches} caches, keys and values of each layer, and one word adds
{row:,} bytes to them.</p>
{figures[2]}</section>
<section><h2>What to remember</h2>
<ul><li>Without a cache, every run computes the rows of all words again, although they do not change.</li>
<li>With a cache, a run writes one row and reads the others.</li>
<li>Without reserved room, each new row copies all old ones, here {copied:,} bytes in all. With room, none. The price:
room that is not yet used is occupied, too.</li></ul></section>
<section class="kv-hand" data-live hidden><h2>Hand it in</h2>
<p><output id="kv-right"></output>. Your code: <code id="kv-code"></code> <button id="kv-copy">Copy</button></p>
<p class="kv-soft">One figure for each question. 2: right at the first try. 1: right later. 0: not yet, or the answer
was shown.</p></section>
<noscript><p>The questions and the steps need scripts, which this browser does not run.</p></noscript>
"""

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline';
 style-src 'unsafe-inline'">
<title>Why a language model keeps a cache</title>
<style>
:root {{ color-scheme: light dark }}
body {{ margin: 0; background: Canvas }}
{style}
</style>
</head>
<body>
<main class="kv-lesson kv-page">{body}</main>
<script type="application/json" id="kv-questions">{data}</script>
<script type="module">{script}</script>
</body>
</html>
"""
