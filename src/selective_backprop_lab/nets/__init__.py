"""Small nets by name, and models of the user's own. Read `models.py` first.

Each net is made by a function of the images' channels, the number of classes, and the images' side
in pixels, followed by options of its own. Most nets ignore the side. They turn images into logits.
"""
