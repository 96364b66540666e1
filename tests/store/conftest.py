"""Each store test meets both engines."""

from tests.support.coordinator import database_url, empty_url, postgres_template, sqlite_template

__all__ = ["database_url", "empty_url", "postgres_template", "sqlite_template"]
