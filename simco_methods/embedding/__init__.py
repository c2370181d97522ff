"""Features of a folder of images on disk, and the nearest images of a query."""
