one:
  test.succeed_with_changes:
    - watch_in:
      - test: two
two: test.nop
