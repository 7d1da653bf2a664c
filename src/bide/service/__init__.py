"""Puts the ends together. `build` is the composition root, the only importer of concrete stores, engines and blobs."""
