"""The stages of a lowering: composition, decision, compilation and result."""
