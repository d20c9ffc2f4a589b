"""Small faults put into the code, to see whether the tests notice: ``python -m tests.faults --count 300 --seed 1``."""
