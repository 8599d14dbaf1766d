bad: test.fail_without_changes
changed: test.succeed_with_changes
listener:
  test.nop:
    - require:
      - test: bad
    - listen:
      - test: changed
