"""Commands on a model's folder: text, chat, and models that decode nothing.

A chat template is part of a model, and no more to be trusted: it is filled in within a limited time and memory.
"""

import json
import shlex
import sys
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
import tokenizers

import kvviz
from kvviz import cli
from kvviz.errors import KvvizError, LoadError
from kvviz.text.companions import Companions, render_chat
from tests.graph.build import MODELS
from tests.load.test_model_folder import _text_model
from tests.smollm2.tiny import TEMPLATE, TOKENS, write_tiny

CHAT = (
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<a>{% endif %}"
)


@pytest.fixture(scope="module")
def words() -> tokenizers.Tokenizer:
    """A tokenizer whose texts begin with a token of their own."""
    known = {"<s>": 0, "</s>": 1, "[UNK]": 2, "hello": 3, "world": 4, "<user>": 5, "<a>": 6}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(known, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made.add_special_tokens([tokenizers.AddedToken(name, special=True) for name in ("<s>", "</s>", "<user>", "<a>")])
    made.post_processor = tokenizers.processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 0)])
    return made


def folder_with(place: Path, words: tokenizers.Tokenizer, **settings: object) -> Path:
    words.save(str(place / "tokenizer.json"))
    told = {"bos_token": {"content": "<s>"}, "eos_token": "</s>", "chat_template": CHAT, **settings}
    (place / "tokenizer_config.json").write_text(json.dumps(told), "utf-8")
    return place


def test_a_chat_begins_once_and_is_written_as_the_template_says(tmp_path: Path, words: tokenizers.Tokenizer) -> None:
    found = Companions((str(folder_with(tmp_path, words)),))
    assert found.chat("hello world") == "<s><user>hello world<a>"
    assert found.tokenizer.encode(found.chat("hello world")) == [0, 5, 3, 4, 6]
    assert found.tokenizer.encode("hello world") == [0, 3, 4]
    # a template of its own file is used, or the default of several
    several = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "yes"}]
    folder_with(tmp_path, words, chat_template=several)
    assert Companions((str(tmp_path),)).chat("x") == "yes"
    (tmp_path / "chat_template.jinja").write_text("{% if true %}\nfile\n{% endif %}", "utf-8")
    assert Companions((str(tmp_path),)).chat("x") == "file\n"


def test_tokens_that_end_a_text_are_found_beside_the_model(tmp_path: Path, words: tokenizers.Tokenizer) -> None:
    folder_with(tmp_path, words)
    # each file goes before those of the lines above, but for one that is wrong
    for name, data, stops in [
        ("tokenizer_config", {"eos_token": "</s>"}, (1,)),
        ("config", {"eos_token_id": 3}, (3, 1)),
        ("generation_config", {"eos_token_id": "x"}, (1,)),
        ("generation_config", {"eos_token_id": [4, 1]}, (4, 1)),
        ("genai_config", {"model": {"eos_token_id": 3}}, (3, 1)),
    ]:
        (tmp_path / f"{name}.json").write_text(json.dumps(data), "utf-8")
        assert Companions((str(tmp_path),)).stop_tokens == stops, name


def test_bad_templates_and_damaged_files_are_one_error_each(tmp_path: Path, words: tokenizers.Tokenizer) -> None:
    for template, why in [
        ("{{ ''.__class__.__mro__ }}", "cannot be used here"),
        ("{% for %}", "cannot be used here"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
    ]:
        with pytest.raises(KvvizError, match=why):
            Companions((str(folder_with(tmp_path, words, chat_template=template)),)).chat("x")
    folder_with(tmp_path, words)
    (tmp_path / "generation_config.json").write_text("{", "utf-8")
    with pytest.raises(LoadError, match=r"generation_config\.json beside the model is not JSON"):
        _ = Companions((str(tmp_path),)).tokenizer
    (tmp_path / "tokenizer.json").write_text("{}", "utf-8")
    with pytest.raises(LoadError, match=r"tokenizer\.json beside the model cannot be read"):
        _ = Companions((str(tmp_path),)).tokenizer


@pytest.mark.parametrize("package", ["tokenizers", "jinja2"])
def test_what_is_not_installed_is_named_with_the_extra(
    tmp_path: Path, words: tokenizers.Tokenizer, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder_with(tmp_path, words)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(KvvizError, match=rf"{package} is not installed; get it with: pip install 'kvviz\[text\]'"):
        Companions((str(tmp_path),)).chat("x")


def test_an_embedding_model_reads_a_text_once(
    tmp_path: Path, words: tokenizers.Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(_text_model("last_hidden_state float batch seq 1"), folder_with(tmp_path, words) / "model.onnx")
    saved = tmp_path / "run.kvviz"
    assert cli.main(["report", str(tmp_path), "--text", "hello world", "--save", str(saved), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["prompt"] == []
    bindings = {bound.name: bound for bound in kvviz.Trace.load(saved).frames[0].bindings}
    assert bindings["input_ids"].shape == (1, 3)
    assert cli.main(["report", str(tmp_path), "--prompt", "1,2"]) == 2
    assert "holds an embedding model, which has no next token to choose" in capsys.readouterr().err


def test_a_decoder_without_its_encoders_states_says_what_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(MODELS / "o03_optimum1_merged_whisper")
    assert cli.main(["report", path, "--graph", "nosuch"]) == 2
    assert "there are 'encoder.onnx', 'model.onnx'" in capsys.readouterr().err
    vocabulary = ["--words", str(MODELS / "storyteller" / "vocab.json")]
    assert cli.main(["report", path, "--graph", "model", "--text", "once", *vocabulary]) == 2
    told = capsys.readouterr().err
    assert "the decoder of an encoder-decoder model: give its encoder's output, encoder_hidden_states" in told


def test_what_a_model_is_and_how_to_look_at_it_is_told_before_it_runs(
    tmp_path: Path, words: tokenizers.Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    # given a folder of several graphs
    assert cli.main(["about", str(MODELS / "o03_optimum1_merged_whisper")]) == 0
    lines = capsys.readouterr().out.splitlines()
    # then each is named with its kind
    assert lines[1].startswith("  encoder.onnx: a speech encoder, ")
    assert lines[2].startswith("  model.onnx: the decoder of an encoder-decoder model, 1 node")
    # given one with a tokenizer, the command that is told runs
    onnx.save(_text_model("last_hidden_state float batch seq 1"), folder_with(tmp_path, words) / "model.onnx")
    assert cli.main(["about", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{tmp_path}: an embedding model"
    assert "  tokenizer: end-of-text tokens </s> (1); a chat template" in lines
    command = shlex.split(lines[-1].removeprefix("  next: "))
    assert command[:3] == ["kvviz", "html", str(tmp_path)]
    assert cli.main(["report", *command[2:]]) == 0


def test_a_gguf_file_answers_as_what_is_converted_from_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # given a file, and the folder that is made of it
    path, folder = write_tiny(tmp_path / "tiny.gguf"), tmp_path / "made"
    kvviz.smollm2.convert(folder, "concat", path)
    # when both are asked the same
    answers = []
    for given in (path, folder):
        line = ["report", str(given), "--chat", "hello", "--tokens", "5", "--json"]
        assert cli.main(line) == 0
        data = json.loads(capsys.readouterr().out)
        answers.append((data["prompt"], data["tokens"], data["totals"]))
    assert answers[0] == answers[1]
    assert "<|im_start|>" in TEMPLATE and answers[0][0][0] == TOKENS.index("<|im_start|>")
    graphs = [kvviz.load(given) for given in (path, folder)]
    assert graphs[0].weights.keys() == graphs[1].weights.keys()
    for name, array in graphs[1].weights.items():
        np.testing.assert_array_equal(graphs[0].weights[name], array)


ASKED = [{"role": "user", "content": "<b> é"}]
ENDLESS = {
    "loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "a number": "{{ 9 ** (9 ** 9) }}",
    "filters": "{{ range(99999) | map('string') | join('x' * 99999) | length * 0 }}{{ 7 ** (8 ** 9) }}",
}


@pytest.mark.parametrize("template", ENDLESS)
def test_a_template_that_does_not_end_is_ended_on_any_thread(template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvviz.text.companions.LONGEST", 1.0)
    found: list[str] = []

    def render() -> None:
        try:
            render_chat(ENDLESS[template], ASKED, {})
        except KvvizError as error:
            found.append(str(error))

    thread = threading.Thread(target=render, daemon=True)
    thread.start()
    # One that nobody ends runs for days.
    thread.join(120)
    assert len(found) == 1
    assert "did not end within 1 seconds" in found[0] or (template != "loops" and "fails: MemoryError" in found[0])
    if template == "loops":
        with pytest.raises(KvvizError, match="did not end within 1 seconds"):
            render_chat(ENDLESS[template], ASKED, {})


def test_a_template_gives_its_text_as_it_is_or_is_refused() -> None:
    template = "{{ bos_token }}{% for m in messages %}{{ m.content | tojson }}{% endfor %}"
    assert render_chat(template, ASKED, {"bos_token": "<s>"}) == '<s>"<b> é"'
    with pytest.raises(KvvizError, match="cannot be used here: only one message"):
        render_chat("{{ raise_exception('only one message') }}", ASKED, {})
    with pytest.raises(KvvizError, match="MemoryError"):
        render_chat("{{ 'x' * 99999999999 }}", ASKED, {})
