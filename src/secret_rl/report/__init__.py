"""Pictures of mazes and results."""
