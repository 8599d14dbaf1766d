before:
  test.succeed_with_changes:
    - prereq:
      - test: target
target: test.nop
