"""The report as text, HTML, Markdown, JSON and SARIF."""
