"""Hypothesis strategies, and what shaping is tested with: what our tests, and yours, can build on."""
