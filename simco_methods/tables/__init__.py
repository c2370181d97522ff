"""The paper's tables and figures: what each is, its cells, running them, and the report.

What a table is stands in ``solo_configs/tables``; :mod:`.definition` reads it, :mod:`.cells` makes
runs of it, :mod:`.launch` runs them, :mod:`.collect` and :mod:`.present` report.
"""
