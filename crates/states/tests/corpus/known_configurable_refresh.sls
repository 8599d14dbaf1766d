changed: test.succeed_with_changes
watcher:
  test.configurable_test_state:
    - changes: False
    - watch:
      - test: changed
