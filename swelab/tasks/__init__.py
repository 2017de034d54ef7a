"""Where tasks come from, and the working copies they are solved in."""
