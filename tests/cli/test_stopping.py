"""Stopping a command from the keyboard."""

from importlib import import_module
from typing import Any

import pytest

import kvviz
from kvviz import cli
from tests.test_cli import LLAMA

compare_module = import_module("kvviz.view.compare")


def test_a_run_that_was_stopped_is_told_with_its_own_exit_status(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a decode that is stopped after a word
    decode = kvviz.decode

    def stopped(*given: Any, **how: Any) -> kvviz.Trace:
        trace = decode(*given, **{**how, "max_new_tokens": 1})
        trace.interrupted = True
        return trace

    monkeypatch.setattr(kvviz, "decode", stopped)
    # when, then
    assert cli.main(["report", LLAMA, "--prompt", "5,17", "--fail-on", "steps>9999"]) == 130
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "kvviz: stopped from the keyboard\n")

    def pressed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    # the options are read when all commands have been imported
    monkeypatch.setattr("kvviz.cli.options.parser", pressed)
    assert cli.main(["report", LLAMA]) == 130


def test_a_comparison_that_was_stopped_compares_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    run = compare_module.runner

    def stopping(*given: Any, **how: Any) -> Any:
        decode = run(*given, **how)

        def stopped(policy: Any) -> kvviz.Trace:
            trace = decode(policy)
            trace.interrupted = policy.name == "rten"
            return trace

        return stopped

    monkeypatch.setattr(compare_module, "runner", stopping)
    assert cli.main(["compare", LLAMA, "--prompt", "5,17", "--tokens", "2"]) == 130
