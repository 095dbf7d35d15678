"""Slow but obvious references, and hypothesis strategies: what our tests, and yours, can build on."""
