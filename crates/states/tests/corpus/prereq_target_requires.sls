before:
  test.nop:
    - prereq:
      - test: target
needed: test.succeed_with_changes
target:
  test.succeed_with_changes:
    - require:
      - test: needed
