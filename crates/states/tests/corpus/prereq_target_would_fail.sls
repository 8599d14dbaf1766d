before:
  test.nop:
    - prereq:
      - test: target
target: test.fail_without_changes
