"""A chat template is part of a model, and no more to be trusted: it is filled in within a limited time and memory."""

import threading

import pytest

from kvviz.errors import KvvizError
from kvviz.text.companions import render_chat

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
