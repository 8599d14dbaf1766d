listener:
  test.nop:
    - listen:
      - test: one
      - test: two
one: test.succeed_with_changes
two: test.succeed_with_changes
