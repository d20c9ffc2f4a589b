"""One report on a trace: what was found, ranked and worded, and its faces as text, HTML, Markdown, JSON and SARIF."""
