"""The planner: who gets which nodes, constants and device, and why."""
