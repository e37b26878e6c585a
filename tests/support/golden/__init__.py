"""Golden plans: a model, plugins and rules in text, and the plan that comes of them in text."""
