"""Attention operators, rotary embedding, and the rows that caches get."""
