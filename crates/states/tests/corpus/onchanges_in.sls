one:
  test.nop:
    - onchanges_in:
      - test: two
two: test.nop
