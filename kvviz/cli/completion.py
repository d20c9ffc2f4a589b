"""What makes a shell complete the commands and options: a script made of the parser, so that it never lags behind."""

from __future__ import annotations

import argparse

SHELLS = ("bash", "zsh", "fish")

_BASH = """_kvviz() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} command=${{COMP_WORDS[1]}} known=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{commands}" -- "$word"))
    return
  fi
  case $command in
{cases}
  esac
  case $word in
    -*) COMPREPLY=($(compgen -W "$known" -- "$word")) ;;
    *) COMPREPLY=($(compgen -f -- "$word")) ;;
  esac
}}
complete -o filenames -F _kvviz kvviz
"""


def completion_command(options: argparse.Namespace) -> int:
    print(completion(options.parser, options.shell), end="")
    return 0


def completion(parser: argparse.ArgumentParser, shell: str) -> str:
    """A script for a shell, to be read at its start: ``eval "$(kvviz completion bash)"``."""
    commands, about = _commands(parser)
    if shell == "fish":
        lines = ["complete -c kvviz -f -n __fish_use_subcommand -a '' "]
        for name, flags in commands.items():
            lines.append(f"complete -c kvviz -f -n __fish_use_subcommand -a {name} -d {_quoted(about[name])}")
            here = f"-n '__fish_seen_subcommand_from {name}'"
            lines += [f"complete -c kvviz {here} -l {flag[2:]} -d {_quoted(told)}" for flag, told in flags.items()]
        return "\n".join(lines[1:]) + "\n"
    cases = "\n".join(f'    {name}) known="{" ".join(flags)}" ;;' for name, flags in commands.items())
    script = _BASH.format(commands=" ".join(commands), cases=cases)
    return f"autoload -U +X bashcompinit && bashcompinit\n{script}" if shell == "zsh" else script


def _commands(parser: argparse.ArgumentParser) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """Long options of each command with what they do, and what each command does."""
    (found,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    about = {choice.dest: choice.help or "" for choice in found._choices_actions}
    flags = {
        name: {
            flag: (action.help or "").replace("%%", "%")
            for action in inner._actions
            for flag in action.option_strings
            if flag.startswith("--")
        }
        for name, inner in found.choices.items()
    }
    return flags, about


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
