target:
  test.succeed_with_changes: []
before:
  test.nop:
    - prereq:
      - test: target
