"""The database: tables, the differences of its two engines, reads into core values, and commits."""
