"""Shell completion, made of the parser."""

import shutil
import subprocess

import pytest

from kvviz import cli
from kvviz.cli.options import SHELLS, completion, parser


def test_every_shell_completes_commands_and_options_and_bash_offers_what_fits(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for shell in SHELLS:
        assert cli.main(["completion", shell]) == 0
        script = capsys.readouterr().out
        for word in ("demo", "report", "html", "find", "compare", "schema", "lab", "fail-on", "kv-capacity", "chat"):
            assert word in script
    bash = shutil.which("bash")
    assert bash is not None
    ask = "COMP_WORDS=(kvviz {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _kvviz; echo ${{COMPREPLY[@]}}"
    for words, offered in (("re", "report"), ("report x --fail", "--fail-on"), ("html --pol", "--policy")):
        script = completion(parser(), "bash") + ask.format(words=words)
        done = subprocess.run([bash, "-c", script], capture_output=True, text=True, check=True)
        assert done.stdout.split() == [offered]
