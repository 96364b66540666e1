"""Alembic's folder: one file for each step of the schema, never edited once released."""
