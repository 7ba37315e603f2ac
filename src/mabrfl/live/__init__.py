"""The live page: it follows a run, a sweep or a Flower federation while it goes, and changes nothing.

``local_server`` answers requests of this machine, ``routes`` finds what a folder is, and each view reads its files as
they grow. The page itself, with its style and its script, is ``data/live.html``.
"""
