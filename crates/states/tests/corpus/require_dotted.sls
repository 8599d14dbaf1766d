one: test.nop
two:
  test.nop:
    - require:
      - test.nop: one
