"""From a plan to compiled delegates and a program that calls them; nodes go by their names."""
