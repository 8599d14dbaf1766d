one:
  test.nop:
    - require:
      - test: two
two:
  test.nop:
    - watch:
      - test: three
three:
  test.nop:
    - onchanges:
      - test: one
