changed: test.succeed_with_changes
watcher:
  test.fail_without_changes:
    - watch:
      - test: changed
