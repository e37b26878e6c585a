"""The command line. Only it prints, and only commands that need torch import it."""
