"""Shell completion, made of the parser."""

import shutil
import subprocess

import pytest

from kvviz import cli
from kvviz.cli.options import SHELLS, completion, parser


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_and_its_options_are_completed(shell: str) -> None:
    script = completion(parser(), shell)
    for word in ("demo", "report", "html", "find", "compare", "schema", "lab", "fail-on", "kv-capacity", "chat"):
        assert word in script


def test_bash_offers_what_fits() -> None:
    bash = shutil.which("bash")
    assert bash is not None
    ask = "COMP_WORDS=(kvviz {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _kvviz; echo ${{COMPREPLY[@]}}"
    for words, offered in (("re", "report"), ("report x --fail", "--fail-on"), ("html --pol", "--policy")):
        script = completion(parser(), "bash") + ask.format(words=words)
        done = subprocess.run([bash, "-c", script], capture_output=True, text=True, check=True)
        assert done.stdout.split() == [offered]


def test_the_command_prints_the_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", "zsh"]) == 0
    assert "bashcompinit" in capsys.readouterr().out
