one:
  test.nop:
    - require:
      - test:
