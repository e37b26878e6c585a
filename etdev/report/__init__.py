"""Tables and sentences about plans, differences and profiles."""
