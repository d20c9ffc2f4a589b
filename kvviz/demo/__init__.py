"""The demo in the package: a small model that writes stories, and its vocabulary."""
