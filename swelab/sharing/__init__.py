"""Publishes an experiment: as a data set, a model, folders for the leaderboard, an archive of everything."""
