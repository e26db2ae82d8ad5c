"""Which operator of a namespace works: a Lease, and what it lets its holder do."""
