s/--after 42/--after "$(wc -l < audit.jsonl)"/
