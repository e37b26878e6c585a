"""A survey of models in all orders of plugins, by a runner that shares no code with etdev."""
