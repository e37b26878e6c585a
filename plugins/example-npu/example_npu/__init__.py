"""An NPU with two cores that doesn't exist: compiler, plugin, runner."""
