"""Models that the tests lower: small nets, decoders, the matrix, and programs of devices."""
