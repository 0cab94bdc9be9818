"""Agent + plan + defaults = something to train: trainers, run directories, metrics, checkpoints, evaluation."""
