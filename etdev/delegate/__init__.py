"""From a plan to compiled delegates, and to a program that calls them."""
