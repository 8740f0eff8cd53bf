"""The small nets, by name, and how a model of the user's own is found. Read `models.py` first.

Each net is made by a function of the images' channels, the number of classes, and the images' side
in pixels, which most nets do not ask for; it turns images into logits. Its own options come after.
"""
