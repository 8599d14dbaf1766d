one: test.nop
two:
  test.nop:
    - require:
      - file: one
