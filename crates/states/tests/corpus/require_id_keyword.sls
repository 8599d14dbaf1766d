one: test.nop
two:
  test.nop:
    - require:
      - id: one
