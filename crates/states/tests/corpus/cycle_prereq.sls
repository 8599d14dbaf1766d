one:
  test.nop:
    - prereq:
      - test: two
two:
  test.nop:
    - prereq:
      - test: one
