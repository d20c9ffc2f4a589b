"""The report on a trace: ranked findings in words, as text, HTML, Markdown, JSON and SARIF."""
