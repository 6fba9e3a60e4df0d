"""Where jobs and their runs stand: storage decides it, the ledger adds what is under way."""
