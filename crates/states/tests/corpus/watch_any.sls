changed: test.succeed_with_changes
bad: test.fail_without_changes
one:
  test.succeed_with_changes:
    - watch_any:
      - test: bad
      - test: changed
none:
  test.nop:
    - watch_any:
      - test: bad
