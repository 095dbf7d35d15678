"""Tasks that the design of the method had not met; those it was chosen on are in ``secret_rl.tasks``."""
