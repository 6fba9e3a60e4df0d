"""What the producer, the workers and the trainer agree on: messages, records, receipts, ledger."""

__version__ = "0.2.0"
