bad: test.fail_without_changes
before:
  test.nop:
    - require:
      - test: bad
    - prereq:
      - test: target
target: test.succeed_with_changes
