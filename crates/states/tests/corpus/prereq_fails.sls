before:
  test.fail_without_changes:
    - prereq:
      - test: target
target: test.succeed_with_changes
after target:
  test.nop:
    - require:
      - test: target
on failure of target:
  test.nop:
    - onfail:
      - test: target
