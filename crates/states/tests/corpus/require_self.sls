one:
  test.nop:
    - require:
      - test: one
