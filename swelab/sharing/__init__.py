"""Hands an experiment on: as a data set, a model, folders for the leaderboard, an archive of everything."""
