"""What is under way, in Redis: the ledger, its scripts, leases and heartbeats."""
