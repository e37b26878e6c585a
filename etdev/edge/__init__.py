"""From a model to the edge dialect, once for all plugins."""
