target:
  test.succeed_with_changes:
    - prereq_in:
      - test: before
before: test.nop
