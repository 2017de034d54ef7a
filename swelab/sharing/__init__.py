"""Publishes an experiment as a data set, a model, leaderboard folders, and an archive of everything behind
the score."""
