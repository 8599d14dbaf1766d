before:
  test.fail_without_changes:
    - prereq:
      - test: one
      - test: two
one: test.nop
two: test.succeed_with_changes
