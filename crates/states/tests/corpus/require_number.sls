one:
  test.nop:
    - require:
      - test: 5
