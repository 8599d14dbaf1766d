one:
  test.nop:
    - require:
      - test: nowhere
