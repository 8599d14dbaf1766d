changed: test.succeed_with_changes
listener:
  test.fail_without_changes:
    - listen:
      - test: changed
