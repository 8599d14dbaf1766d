listener:
  test.nop:
    - listen:
      - test: changed
middle: test.nop
changed: test.succeed_with_changes
