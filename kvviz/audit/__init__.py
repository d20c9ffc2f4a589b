"""Many models at once: what each costs under several policies, what changed since an earlier audit, and limits.

`audit` runs the models, `audit_worker` is the function that one worker runs for one model, `dispatching` hands models
to an executor, survives lost workers and keeps what is done. The faces of an audit are text, HTML, Markdown, JUnit and
SARIF; `pytest_plugin` checks limits from tests.
"""
