"""What the outside is told: events, webhooks, figures."""
