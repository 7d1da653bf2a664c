"""What identities cost: fair sharing between tenants."""
