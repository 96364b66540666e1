"""Repair: what speaks against members and nodes, who moves where, and when the brake says no."""
