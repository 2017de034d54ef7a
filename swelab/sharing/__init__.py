"""An experiment handed on: a data set, a model, the leaderboard's folders, an archive of everything."""
