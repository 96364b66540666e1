"""The coordinator: books gangs, activates and repairs them, and answers about capacity."""
