before:
  test.nop:
    - prereq:
      - test: target
target: test.fail_with_changes
