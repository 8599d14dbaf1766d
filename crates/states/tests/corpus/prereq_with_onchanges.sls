quiet: test.nop
before:
  test.nop:
    - onchanges:
      - test: quiet
    - prereq:
      - test: target
target: test.succeed_with_changes
