"""Every setting: where it comes from, its bounds, and how it is shown."""
