"""The built-in plugin of portable kernels, which the runtime calls op by op."""
