"""Schema: the values that the stages hand to each other. No torch in here."""
