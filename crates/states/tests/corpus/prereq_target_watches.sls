before:
  test.nop:
    - prereq:
      - test: target
changed: test.succeed_with_changes
target:
  test.nop:
    - watch:
      - test: changed
