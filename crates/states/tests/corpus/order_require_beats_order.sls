last one:
  test.nop:
    - order: last
first one:
  test.nop:
    - order: 1
    - require:
      - test: last one
between: test.nop
