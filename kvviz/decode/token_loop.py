"""The token loop: run the graph for the prompt and then once for every token, carrying the caches along."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from kvviz.caches.cache_meter import Fed, new_caches, read_meters
from kvviz.decode.cache_protocols import is_fixed, kept_as, last_logits, make_room, padded_for
from kvviz.decode.model_kind import model_kind
from kvviz.decode.plausible_values import check_vocabulary
from kvviz.decode.prompt import as_batch, text_of, tokenizer_for
from kvviz.decode.run_inputs import check_positions, control_feeds, first_caches
from kvviz.engine.plan import Counts
from kvviz.engine.policy import Policy
from kvviz.engine.run_state import Detail
from kvviz.engine.sessions.recipe import Recipe, fresh
from kvviz.engine.sessions.session import Session
from kvviz.errors import InputError
from kvviz.graph.cache_pairs import CachePair, cache_pairs, control_inputs, logits_output
from kvviz.graph.model import Graph, Value
from kvviz.memory.ghosts import ghost
from kvviz.runtimes.named_policies import facts_of, find_policy
from kvviz.trace.model_or_trace import as_inputs
from kvviz.trace.schema.run_options import DECODE, RunOptions, names_in


class DecodeSession(Session):
    """A greedy decode that can be advanced op by op; the next run begins when the previous one is done. ``**changes``:
    options that differ from ``options``; the other arguments are those of `decode` and of `Session`."""

    def __init__(
        self,
        graph: Graph,
        prompt: Any,
        options: RunOptions = DECODE,
        inputs: Mapping[str, Any] | None = None,
        policy: str | Policy = "ideal",
        record: bool = True,
        poison: bool = False,
        dry: Counts | None = None,
        **changes: Any,
    ) -> None:
        super().__init__(graph, None, find_policy(policy), record, poison, dry)
        options = replace(options, **changes)
        self.given = as_inputs(inputs)
        growth = self.policy.growth if options.growth is None else options.growth
        if growth not in ("start", "after"):
            raise InputError(f"growth must be 'start' or 'after', not {growth!r}")
        tokenizer, stop_tokens = tokenizer_for(graph, prompt, options.tokenizer, options.stop_tokens)
        donate = names_in(options.donate)
        detail = None if options.detail is None or not record else frozenset((0, *options.detail))
        self.most = int(options.max_new_tokens or 0)  # tokens that it generates
        self.options = options = replace(
            options,
            donate=donate,
            max_new_tokens=self.most,
            kv_capacity=None if options.kv_capacity is None else int(options.kv_capacity),
            growth=growth,
            tokenizer=tokenizer,
            stop_tokens=stop_tokens,
            detail=detail,
        )
        self.pairs = kept_as(cache_pairs(graph), options.cache)
        self.roles = control_inputs(graph)
        if "tokens" not in self.roles:
            raise InputError(f"{graph.name}: no input takes tokens (like input_ids); use kvviz.run for a single run")
        if self.roles["tokens"] in self.given:
            raise InputError(
                f"input {self.roles['tokens']!r} takes the tokens of the prompt; leave it out of the inputs"
            )
        logits = logits_output(graph)
        if logits is None:
            raise InputError(f"{graph.name}: no output looks like logits; use kvviz.run for a single run")
        self.logits = logits
        kind = model_kind(graph)
        if kind.why:
            raise InputError(f"{graph.name} is {kind.name} without a next token to choose: {kind.why}; use kvviz.run")
        tokens, mask = padded_for(self.pairs, self.roles, *as_batch(prompt, tokenizer))
        check_vocabulary(graph, self.roles["tokens"], tokens)
        batch, length = tokens.shape
        past = self._rows_given()
        value = next(value for value in graph.inputs if value.name == self.roles["tokens"])
        slides = options.cache == "window"
        self.sequence = FedTokens(value, self.pairs, tokens, mask, past, self.most, slides, options.chunk)
        rows = past + length + self.most - 1
        if self.sequence.caches:
            check_positions(graph, self.roles, rows)
        self._check_donated()
        self.caches: dict[str, Any] = first_caches(
            graph, self.pairs, batch, options.kv_capacity, self.given, rows, growth == "after", dry is not None
        )
        self.window = min(filter(None, map(self._window_rows, self.pairs)), default=None)
        self.carried: dict[str, tuple[int, str]] = {}
        self.kept: set[str] = set()
        self.done = np.zeros(batch, bool)
        self.chosen = 0  # tokens of each sequence so far
        trace = self.trace
        trace.policy = facts_of(self.policy)
        trace.options = replace(
            options,
            tokenizer=tokenizer is not None,
            rows=rows,
            lent=frozenset(self._lent()),
            dry=dry is not None,
            stop_tokens=None,
            detail=None,
        )
        unpadded = [row[keep].tolist() for row, keep in zip(tokens, mask.astype(bool))]
        trace.recipe = self._recipe(prompt if isinstance(prompt, str) else unpadded)
        trace.caches = new_caches(self.pairs)
        trace.prompt = [] if trace.dry else unpadded[0]
        trace.batch_tokens = [[] for _ in range(batch)]
        trace.words = None if trace.dry else text_of(tokenizer, trace.prompt)
        self.feeds: dict[str, Any] = {}
        self.detail = Detail()

    def next_run(self) -> bool:
        if self.chosen >= self.most or self.done.all():
            return False
        if self.trace.runs and self.options.growth == "after":
            make_room(self.trace, self.pairs, self.caches, self.options.kv_capacity)
        given = {name: value for name, value in self.given.items() if name not in self.caches}
        self.feeds = {
            **given,
            **control_feeds(self.graph, self.roles, *self.sequence.due, self.sequence.past, given, self.window),
            **self.caches,
        }
        if self.trace.dry:
            # The tokens themselves are data.
            tokens = self.feeds[self.roles["tokens"]]
            self.feeds[self.roles["tokens"]] = ghost(tokens.shape, tokens.dtype)
        own = [pair.input for pair in self.pairs if pair.protocol != "cross"]
        if not self.trace.runs:
            own = [name for name in own if name not in self.given]
        self.detail.begin(self.trace)
        self.begin(self.feeds, list(dict.fromkeys((*own, *self.options.donate))), self.carried)
        if self.trace.dry:
            run = self.trace.runs[-1]
            run.text = f"decode {self.chosen}" if self.chosen else f"prefill {run.index}" if run.index else "prefill"
        return True

    def ended(self, outputs: dict[str, Any]) -> None:
        """Pick the next tokens, read the meters, and carry the caches on."""
        trace = self.trace
        tokens, mask = self.sequence.due
        chooses = self.sequence.ended()
        if self.recorder.on:
            empty = [pair.input for pair in self.pairs if pair.input not in self.given]
            read_meters(trace, self.feeds, Fed(self.sequence.past, tokens.shape[1], mask, empty))
        if chooses and trace.dry:
            self.chosen += 1
            self.sequence.add(np.zeros(len(tokens), np.int64))
        elif chooses:
            self._choose(last_logits(np.asarray(outputs[self.logits]), mask[:, -tokens.shape[1] :]))
        self._carry(outputs)
        self._keep_or_forget(trace.runs[-1].index)

    def _choose(self, last: np.ndarray) -> None:
        trace = self.trace
        self.chosen += 1
        trace.logits.append(last.copy())
        chosen = last.argmax(-1)
        for row, token, done in zip(trace.batch_tokens, chosen.tolist(), self.done.tolist()):
            if not done:
                row.append(token)
        trace.tokens = trace.batch_tokens[0]
        run = trace.runs[-1]
        run.token = int(chosen[0])
        run.text = text_of(self.options.tokenizer, [run.token])[0]
        if trace.words is not None and not self.done[0]:
            trace.words.append(run.text)
        self.done |= np.isin(chosen, list(self.options.stop_tokens or ()))
        self.sequence.add(chosen)

    def _keep_or_forget(self, run: int) -> None:
        """Drop the steps of a run that was not requested, after the meters have read them."""
        if self.options.detail is None or run in self.options.detail:
            self.detail.keep()
            return
        for cache in self.trace.caches:
            _ = cache.runs
        self.detail.forget(self.trace, self.recorder)

    def _recipe(self, prompt: Any) -> Recipe:
        """A recipe of the same decode; the caller's inputs are among those of the first run."""
        options = {
            "graph": self.graph,
            "prompt": prompt,
            "options": self.options,
            "policy": self.policy,
            "record": self.recorder.on,
            "poison": self.recorder.ledger.poisoned,
            "dry": self.plan.dry,
        }
        runs, names = self.trace.replayer.runs, tuple(self.given)

        def given() -> dict[str, Any]:
            inputs = fresh(runs[0].kept if runs and runs[0] is not None else None) if names else {}
            return {"inputs": {name: inputs[name] for name in names}}

        return Recipe(DecodeSession, options, given)

    def _check_donated(self) -> None:
        """Check that only inputs of a single run are donated: those made for each run, and initial caches."""
        lent, inputs = self._lent(), {value.name for value in self.graph.inputs}
        for name in self.options.donate:
            if name in lent or name not in inputs:
                why = "every run is fed the same array" if name in lent else "the graph has no such input"
                raise InputError(f"cannot donate {name!r}: {why}")

    def _lent(self) -> set[str]:
        cross = {pair.input for pair in self.pairs if pair.protocol == "cross"}
        return cross | (self.given.keys() - {pair.input for pair in self.pairs})

    def _rows_given(self) -> int:
        growing = [pair for pair in self.pairs if pair.protocol == "growing" and pair.axis is not None]
        shapes = [(np.shape(self.given[pair.input]), pair.axis or 0) for pair in growing if pair.input in self.given]
        lengths = {shape[axis] for shape, axis in shapes if axis < len(shape)}
        if len(lengths) > 1:
            raise InputError(f"the caches to start from have different lengths: {sorted(lengths)} rows")
        return lengths.pop() if lengths else 0

    def _window_rows(self, pair: CachePair) -> int:
        """Rows of a fixed-size cache whose oldest tokens make way for new ones; 0 for others."""
        if pair.protocol != "window" or pair.axis is None or not is_fixed(pair):
            return 0
        return int(np.shape(self.caches[pair.input])[pair.axis])

    def _carry(self, outputs: dict[str, Any]) -> None:
        """The outputs become the next run's caches. Cross-attention caches are written once: the first ones are kept,
        because the cached branch of a merged decoder returns empty dummies for them."""
        for pair in self.pairs:
            present = outputs.get(pair.output)
            if present is None or pair.input in self.kept:
                continue
            self.caches[pair.input] = present
            self.carried[pair.input] = (len(self.trace.runs) - 1, pair.output)
            if pair.protocol == "cross" and np.size(present):
                self.kept.add(pair.input)


# -- fed tokens -------------------------------------------------------------------------------------------------------
# Tokens and their mask, run by run: what is due next, by what the graph takes a run and whether it keeps a cache.
#
# Invariant: ``mask`` has a column for every token that was fed or is due, 1 for a token and 0 for padding.


_WINDOW = "window"


class FedTokens:
    """The tokens of a decode.

    With caches every run gets the tokens that follow those in the caches: the prompt, as many at once as the graph
    takes, and then one at a time. Without caches every run gets the whole sequence, padded at the end if its length is
    fixed.

    ``past``: rows in the caches before the first run. ``chunk``: maximum tokens of the prompt per run. ``slides``:
    whether the oldest tokens are dropped if a sequence is longer than a graph without caches takes.
    """

    def __init__(
        self,
        value: Value,
        pairs: tuple[CachePair, ...],
        tokens: np.ndarray,
        mask: np.ndarray,
        past: int,
        new: int,
        slides: bool,
        chunk: int | None = None,
    ) -> None:
        batch, length = tokens.shape
        self.caches = any(pair.protocol != "cross" for pair in pairs)
        size = value.shape[-1] if value.shape else None
        self.size = size if isinstance(size, int) and size > 0 else None  # tokens that a run takes, if that is fixed
        self.past = past  # rows in the caches before the run that is due
        self.tokens = tokens
        self.mask = np.concatenate([np.ones((batch, past), np.int64), mask], 1)
        if slides and (self.caches or self.size is None):
            what = "keeps a cache" if self.caches else "takes sequences of any length"
            raise InputError(f"cache='{_WINDOW}' is for a graph without a cache and of a fixed length; this one {what}")
        if chunk is not None:
            self._cut(chunk)
        elif self.size is None:
            self._later = tokens[:, :0]
        elif self.caches:
            self._divide(value.name, length, new)
        else:
            self._fit(value.name, int(mask.sum(1).max()) + new - 1, new, slides)

    @property
    def due(self) -> tuple[np.ndarray, np.ndarray]:
        """Tokens of the next run, and the mask of the caches' rows and these tokens."""
        return self.tokens, self.mask[:, : self.past + self.tokens.shape[1]]

    def ended(self) -> bool:
        """End the current run; returns whether it chooses tokens, which the end of a prompt does."""
        if not self.caches:
            return True
        self.past += self.tokens.shape[1]
        if not self._later.shape[1]:
            return True
        self.tokens, self._later = self._later[:, : self.size], self._later[:, self.size :]
        return False

    def add(self, chosen: np.ndarray) -> None:
        """Append these tokens, one per sequence."""
        chosen = chosen.astype(np.int64)
        if self.caches:
            self.tokens = chosen[:, None]
            self.mask = np.concatenate([self.mask, np.ones_like(self.tokens)], 1)
            return
        at = self.mask.sum(1)
        if self.size is None:
            self.tokens = np.pad(self.tokens, ((0, 0), (0, 1)))
            self.mask = np.pad(self.mask, ((0, 0), (0, 1)))
        else:
            full = at == self.size
            self.tokens[full] = np.roll(self.tokens[full], -1, 1)
            at = at - full
        rows = np.arange(len(at))
        self.tokens[rows, at] = chosen
        self.mask[rows, at] = 1

    def _cut(self, chunk: int) -> None:
        """Feed a prompt in parts of the caller's size; the last one may be shorter."""
        if chunk < 1 or not self.caches or self.size is not None:
            why = "keeps no cache" if not self.caches else f"takes {self.size} tokens a run"
            raise InputError(
                f"chunk={chunk}: a part of the prompt has at least one token"
                if chunk < 1
                else f"chunk={chunk} divides the prompt of a graph with caches that takes any length; this one {why}"
            )
        self.size = chunk
        self.tokens, self._later = self.tokens[:, :chunk], self.tokens[:, chunk:]

    def _divide(self, name: str, length: int, new: int) -> None:
        """Feed a prompt in parts of the size that a graph with caches takes."""
        size = self.size or length
        if length % size or (size > 1 and new > 1):
            raise InputError(
                f"input {name!r} takes {size} tokens a run, but a decode feeds it a prompt of {length} and then single "
                "tokens; export the model with an open length, or with a length of 1"
            )
        if length > size and not self.mask[:, -1].all():
            raise InputError(f"input {name!r} takes {size} token a run: decode prompts of unequal length one by one")
        self.tokens, self._later = self.tokens[:, :size], self.tokens[:, size:]

    def _fit(self, name: str, need: int, new: int, slides: bool) -> None:
        """Pad sequences to the length that a graph without caches takes."""
        size = self.size or 0
        if need > size and not slides:
            fewer = new - (need - size)
            ask = f"ask for at most {fewer} new tokens" if fewer > 0 else "give a shorter prompt"
            raise InputError(
                f"input {name!r} takes {size} tokens, and without a cache a run is fed all of them: prompt and new "
                f"tokens need {need}; {ask}, or pass cache='{_WINDOW}' to feed only the last {size}"
            )
        at = np.maximum(self.mask.sum(1) - size, 0)[:, None] + np.arange(size)
        inside = at < self.mask.shape[1]
        at = np.minimum(at, self.mask.shape[1] - 1)
        self.tokens = np.where(inside, np.take_along_axis(self.tokens, at, 1), 0)
        self.mask = np.where(inside, np.take_along_axis(self.mask, at, 1), 0)
