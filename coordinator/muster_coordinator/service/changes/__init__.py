"""What an owner changes: all members or nothing."""
