"""etdev-reduce: the smallest program that still fails, and a report for those who can fix it."""
