"""Convolutions, resampling and recurrent layers."""
