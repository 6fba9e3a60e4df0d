"""Work in progress, as Redis knows it: the ledger, its scripts, leases and heartbeats."""
