before:
  test.nop:
    - prereq:
      - test: target
needed: test.fail_without_changes
target:
  test.succeed_with_changes:
    - require:
      - test: needed
