"""The loop: who is asked, what is decided, how it is compiled, and what comes out."""
