"""Nets, made from the numbers of channels and classes, and the side of the images in pixels."""
