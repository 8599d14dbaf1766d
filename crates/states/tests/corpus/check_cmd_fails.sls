one:
  test.nop:
    - check_cmd:
      - 'true'
      - 'false'
two:
  test.nop:
    - require:
      - test: one
