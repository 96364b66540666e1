"""What tenants may hold, hold and have used: quota, charges and usage records."""
