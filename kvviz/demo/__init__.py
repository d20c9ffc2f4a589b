"""What there is to look at right after installing: a storyteller, its vocabulary, and the lessons."""
