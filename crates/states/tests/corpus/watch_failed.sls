bad: test.fail_with_changes
watcher:
  test.nop:
    - watch:
      - test: bad
