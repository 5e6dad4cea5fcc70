-- Messages to be sent: one an episode, event and channel, whoever puts it in. The newest revision of an id stands.
CREATE TABLE outbox (
  Id String COMMENT 'the idempotency key',
  Episode String,
  Event LowCardinality(String) COMMENT 'firing, resolved, flapping, test',
  Channel LowCardinality(String),
  Payload String COMMENT 'JSON',
  State LowCardinality(String) COMMENT 'pending, sent, failed, skipped',
  Attempts UInt32,
  NextAt DateTime64(3, 'UTC'),
  Error String,
  CreatedAt DateTime64(3, 'UTC'),
  Revision UInt64
) ENGINE = ReplacingMergeTree(Revision)
ORDER BY Id
SETTINGS non_replicated_deduplication_window = 100000;

-- Who is sending which attempt: an insert of the same token is dropped, so the first of two senders has it.
CREATE TABLE outbox_claims (
  Id String,
  Attempt UInt32,
  Worker String,
  At DateTime64(3, 'UTC')
) ENGINE = MergeTree
ORDER BY (Id, Attempt)
SETTINGS non_replicated_deduplication_window = 100000;
