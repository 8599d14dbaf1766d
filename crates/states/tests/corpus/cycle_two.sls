one:
  test.nop:
    - require:
      - test: two
two:
  test.nop:
    - require:
      - test: one
