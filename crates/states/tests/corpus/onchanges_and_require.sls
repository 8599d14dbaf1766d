changed: test.succeed_with_changes
bad: test.fail_without_changes
blocked:
  test.nop:
    - onchanges:
      - test: changed
    - require:
      - test: bad
