"""swelab: a declarative reproducibility repository for training software-engineering agents."""
