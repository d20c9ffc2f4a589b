"""Text for models that take token numbers: tokenizers, chat templates and end-of-text tokens, as the files beside a
model hold them."""
