"""The results of the paper, one module each: its settings, how it is run, and what it writes."""
