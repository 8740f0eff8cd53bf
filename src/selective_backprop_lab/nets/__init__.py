"""Small nets by name, and models of the user's own. Read `models.py` first.

Each net is made by a function of the number of channels, the number of classes, and the images'
side in pixels, which most nets ignore. Options may follow. Nets turn images into logits.
"""
