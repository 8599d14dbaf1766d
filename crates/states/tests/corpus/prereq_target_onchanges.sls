before:
  test.nop:
    - prereq:
      - test: target
quiet: test.nop
target:
  test.succeed_with_changes:
    - onchanges:
      - test: quiet
