"""``moorage demo``: what goes wrong under the wrong scheduler, shown with the real live model."""
