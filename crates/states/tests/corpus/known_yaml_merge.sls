base: &base
  test.succeed_with_changes: []
derived:
  <<: *base
