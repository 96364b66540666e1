"""Answers about capacity: now, over time, and what would fit."""
