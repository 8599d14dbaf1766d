one: test.nop
two:
  test.nop:
    - require: one
