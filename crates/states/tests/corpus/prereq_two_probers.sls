first:
  test.nop:
    - prereq:
      - test: target
second:
  test.nop:
    - prereq:
      - test: target
target: test.succeed_with_changes
