"""From one shard task to one shard: parse, decode, resize, encode, write, publish. Never imports TensorFlow."""
