changed: test.succeed_with_changes
bad: test.fail_with_changes
runs:
  test.nop:
    - onchanges_any:
      - test: bad
      - test: changed
